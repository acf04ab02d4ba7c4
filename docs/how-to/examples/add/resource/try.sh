strata node add note-n1
strata note put note-n1 'fan 3 rattles'
strata note list
strata audit list --limit 1
