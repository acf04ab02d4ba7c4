"""What the API shows and takes of the hardware: the records behind the REST contract. Knows no HTTP and no BMC."""
