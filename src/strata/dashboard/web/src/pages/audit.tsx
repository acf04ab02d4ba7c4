/** Who did what, the newest first. */
import { Failure, Table, Time } from "../ui/parts";
import { useAsked } from "../ui/use";

interface Entry {
  seq: number;
  time: number;
  author: string;
  action: string;
  target: string;
  detail: Record<string, unknown>;
}

/** Details as people write them: names and values, without the marks of a programming language. */
function told(value: unknown): string {
  if (Array.isArray(value)) return value.map(told).join(", ") || "none";
  if (value && typeof value === "object")
    return Object.entries(value)
      .filter(([, one]) => one !== "" && one !== null && !(typeof one === "object" && !Object.keys(one as object).length))
      .map(([name, one]) => `${name}: ${name === "expires" && typeof one === "number" ? new Date(one * 1000).toLocaleString() : told(one)}`)
      .join("; ");
  return String(value);
}

export function AuditPage() {
  const audit = useAsked<{ items: Entry[] }>("/v1/audit", { newest: true, limit: 200 }, 5000);
  return (
    <section>
      <Failure problem={audit.problem} />
      <Table head={["when", "who", "what", "to what", "details"]} label="Audit log">
        {audit.value?.items.map((entry) => (
          <tr key={entry.seq}>
            <td>
              <Time at={entry.time} />
            </td>
            <td>{entry.author}</td>
            <td>{entry.action}</td>
            <td class="cut" title={entry.target}>
              {entry.target}
            </td>
            <td class="details" title={JSON.stringify(entry.detail)}>
              <small>{told(entry.detail)}</small>
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
