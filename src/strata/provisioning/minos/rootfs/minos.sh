# What /init does on the way, each a function. Sourced by it, and by tests.

BOOT=${BOOT:-/etc/strata/boot.json}

# What images are mounted with, and drivers of the devices that are there. A driver may bring devices of its own (a bus),
# so until there are no new ones.
load_modules() {
    wanted="@ALWAYS@"
    known=
    while :; do
        found=$(sort -u /sys/bus/*/devices/*/modalias)
        [ "$found" = "$known" ] && break
        known=$found
        echo "$wanted $found" | xargs modprobe -a -b -q 2>/dev/null
        wanted=
    done
}

# Certificates need a sane clock. The boot data was made a moment ago, by the controller's clock.
set_clock() {
    made=$(stat -c %Y "$BOOT" 2>/dev/null) || return 0
    now=$(date +%s)
    off=$((made - now))
    [ "${off#-}" -gt 120 ] && [ "$made" -gt 1700000000 ] && date -s "@$made" >/dev/null
    return 0
}

# One line for each interface that the boot data describes: MAC ADDRESS/BITS GATEWAY DNS,DNS ("-" where there is none).
# The data is the controller's own, in which no value holds a brace, a bracket or a quotation mark.
interfaces() {
    tr -d ' \n' <"$1" | awk '
        function text(part, key) {
            if (!match(part, "\"" key "\":\"[^\"]+")) return "-"
            return substr(part, RSTART + length(key) + 4, RLENGTH - length(key) - 4)
        }
        function list(part, key,    found) {
            if (!match(part, "\"" key "\":\\[[^]]+")) return "-"
            found = substr(part, RSTART + length(key) + 4, RLENGTH - length(key) - 4)
            gsub("\"", "", found)
            return found
        }
        match($0, /"interfaces":\[/) {
            rest = substr($0, RSTART + RLENGTH)
            while (substr(rest, 1, 1) == "{") {
                part = substr(rest, 1, index(rest, "}"))
                print text(part, "mac"), text(part, "address"), text(part, "gateway"), list(part, "dns")
                rest = substr(rest, length(part) + 1)
                sub(/^,/, "", rest)
            }
        }'
}

# The node's name, if the boot data has one.
node_name() {
    tr -d ' \n' <"$1" | sed -n 's/.*"node":"\([A-Za-z0-9._-]*\)".*/\1/p'
}

interface_of() {
    for path in /sys/class/net/*; do
        [ "$(cat "$path/address")" = "$1" ] && echo "${path##*/}" && return
    done
}

# Addresses as the controller gave them; without them by DHCP. Where routers advertise, the kernel also makes its own.
bring_up_network() {
    ip link set lo up
    for path in /sys/class/net/*; do
        [ -e "$path/device" ] && ip link set "${path##*/}" up
    done
    hostname minos
    given=
    if [ -e "$BOOT" ]; then
        name=$(node_name "$BOOT")
        [ -n "$name" ] && hostname "$name"
        interfaces "$BOOT" >/run/interfaces
        while read -r mac address gateway dns; do
            device=$(interface_of "$mac")
            [ -n "$device" ] && [ "$address" != - ] || continue
            ip addr add "$address" dev "$device" && given=1
            [ "$gateway" != - ] && ip route replace default via "$gateway" dev "$device"
            [ "$dns" != - ] && echo "$dns" | tr , '\n' | sed 's/^/nameserver /' >>/etc/resolv.conf
        done </run/interfaces
    fi
    [ -n "$given" ] && return
    for path in /sys/class/net/*; do
        [ -e "$path/device" ] || continue
        udhcpc -q -n -f -t 4 -T 2 -i "${path##*/}" -s /etc/strata/dhcp >/dev/null 2>&1 && break
    done
}

# What the kernel before this one wrote when it died, where the firmware kept it: the agent reports it.
keep_crash_records() {
    [ -d /sys/firmware/efi ] && modprobe -q efi_pstore 2>/dev/null
    mount -t pstore -o nosuid,nodev,noexec pstore /sys/fs/pstore 2>/dev/null
    return 0
}
