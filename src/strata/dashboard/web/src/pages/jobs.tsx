/** Jobs, as the job layer lists them. */
import { Failure, Table } from "../ui/parts";
import { useAsked } from "../ui/use";

type Job = Record<string, unknown>;

export function JobsPage() {
  const jobs = useAsked<{ items: Job[] }>("/v1/jobs", {}, 5000);
  const items = jobs.value?.items ?? [];
  const plain = Object.entries(items[0] ?? {}).filter(([, value]) => value === null || typeof value !== "object");
  const fields = plain.map(([key]) => key).slice(0, 8);
  return (
    <section>
      <Failure problem={jobs.problem} />
      {jobs.value && !items.length && <p>No jobs.</p>}
      <Table head={fields} label="Jobs">
        {items.map((job, place) => (
          <tr key={place}>
            {fields.map((field) => (
              <td key={field}>{String(job[field] ?? "–")}</td>
            ))}
          </tr>
        ))}
      </Table>
    </section>
  );
}
