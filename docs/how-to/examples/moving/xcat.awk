# lsdef's stanzas of nodes → the CSV that 'strata node add -f' takes: awk -f xcat.awk lsdef.txt
# With -v groups=1: lines of group and node instead.
function out() {
    if (name != "" && !groups) printf "%s,https://%s,\"mac=%s,address=%s\"\n", name, bmc, mac, ip
    bmc = mac = ip = ""
}
BEGIN { FS = "="; if (!groups) print "name,bmc,interfaces" }
/^[^ ].*:$/ { out(); name = substr($0, 1, length($0) - 1) }
/^ +bmc=/ { bmc = $2 }
/^ +ip=/ { ip = $2 }
/^ +mac=/ { mac = $2 }
/^ +groups=/ && groups { count = split($2, each, ","); for (i = 1; i <= count; i++) if (each[i] != "all") print each[i], name }
END { out() }
