strata node add disk-n[1-3]
strata node set disk-n[1-2] scratch=formatted --wait
strata node list fact:scratch=formatted --folded
