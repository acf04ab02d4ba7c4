"""``strata node``: look at nodes, change them, edit what their owners say of them."""
