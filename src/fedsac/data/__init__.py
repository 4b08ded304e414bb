"""The data: published sets, files of one's own, folders of silos."""
