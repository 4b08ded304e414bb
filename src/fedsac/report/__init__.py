"""Reports: drawings (SVG and PDF), the charts made of them, and the HTML page that shows a run or a comparison."""
