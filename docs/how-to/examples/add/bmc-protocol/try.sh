python pdu.py port & trap "kill $!" EXIT
until [ -s port ]; do sleep 0.1; done
strata node add pdu-n1 --bmc "outlet://127.0.0.1:$(cat port)/3"
strata node set pdu-n1 power=on --wait
strata node list pdu-n1 --columns name,facts
