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

export function AuditPage() {
  const audit = useAsked<{ items: Entry[] }>("/v1/audit", { newest: true, limit: 200 }, 5000);
  return (
    <section>
      <Failure problem={audit.problem} />
      <Table head={["when", "who", "what", "to what", ""]} label="Audit log">
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
            <td class="cut">
              <small title={JSON.stringify(entry.detail)}>{Object.keys(entry.detail).length ? JSON.stringify(entry.detail) : ""}</small>
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
