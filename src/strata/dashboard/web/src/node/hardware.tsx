/** What the node's BMC measures, and what the node is made of. */
import { Failure, Table, Time } from "../ui/parts";
import { useAsked } from "../ui/use";

interface Reading {
  name: string;
  kind: string;
  unit: string;
  value: number | null;
  health: string | null;
  high: number | null;
  doubt: string;
}

/** Redfish's letters for units that people write otherwise. */
const UNITS: Record<string, string> = { "kW.h": "kWh", Cel: "°C" };

const measured = (value: number, unit: string): string =>
  `${Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(4))}\u00a0${UNITS[unit] ?? unit}`;

interface Part {
  id: string;
  kind: string;
  name: string;
  slot: string;
  vendor: string;
  model: string;
  serial: string;
  firmware: string;
  health: string | null;
}

export function Hardware({ name }: { name: string }) {
  const sensors = useAsked<{ items: { time: number; readings: Reading[]; trouble: string }[] }>("/v1/bmc/sensors", { select: name }, 10_000);
  const parts = useAsked<{ seen: number; components: Part[] }>(`/v1/nodes/${encodeURIComponent(name)}/hardware`);
  const read = sensors.value?.items[0];
  return (
    <div class="columns">
      <article>
        <h3>Sensors</h3>
        <Failure problem={sensors.problem} />
        {read?.trouble && <p>{read.trouble}</p>}
        <Table head={["sensor", "value", "critical at", "health"]} label="Sensors">
          {read?.readings.map((reading) => (
            <tr key={reading.name}>
              <th scope="row">{reading.name}</th>
              <td>{reading.value === null ? reading.doubt || "unknown" : measured(reading.value, reading.unit)}</td>
              <td>{reading.high ?? "–"}</td>
              <td>{reading.health ?? "–"}</td>
            </tr>
          ))}
        </Table>
      </article>
      <article>
        <h3>Parts</h3>
        <Failure problem={parts.problem} />
        {parts.value && (
          <>
            <p>
              Seen <Time at={parts.value.seen} />
            </p>
            <Table head={["kind", "name", "model", "serial", "firmware", "health"]} label="Parts">
              {parts.value.components.map((part) => (
                <tr key={part.id}>
                  <td>{part.kind}</td>
                  <td>{part.name || part.slot}</td>
                  <td>{[part.vendor, part.model].filter(Boolean).join(" ")}</td>
                  <td>{part.serial}</td>
                  <td>{part.firmware}</td>
                  <td>{part.health ?? "–"}</td>
                </tr>
              ))}
            </Table>
          </>
        )}
      </article>
    </div>
  );
}
