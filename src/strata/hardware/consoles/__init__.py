"""What nodes print: captured, kept, searched, watched for trouble."""
