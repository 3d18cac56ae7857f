"""What is kept: the data folder, the blobs in it, and the catalog of them."""
