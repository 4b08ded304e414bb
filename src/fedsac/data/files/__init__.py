"""Reading the user's own data: files, folders of silos, functions."""
