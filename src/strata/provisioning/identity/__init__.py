"""Who a node is: boot generations, one-time tokens, and the certificates that they become."""
