"""Results to look at: drawings, charts made of them, and the page that shows a run or a comparison."""
