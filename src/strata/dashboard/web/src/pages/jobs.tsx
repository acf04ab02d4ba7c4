/** Jobs at all schedulers, newest first: one's own, or everybody's for whoever may see those. */
import { live } from "../machine/fleet";
import { nodePath } from "../router";
import { may } from "../session";
import { useSignal } from "../signal";
import { Badge, Failure, Table, Time, span } from "../ui/parts";
import { useAsked } from "../ui/use";

interface Job {
  id: string;
  name: string;
  owner: string;
  target: string;
  queue: string | null;
  state: string;
  outcome: string | null;
  status: number | null;
  signal: number | null;
  reason: string;
  tasks: number;
  tasks_ended: number;
  nodes: string[];
  submitted: number;
  began: number | null;
  ended: number | null;
}

const SHOWN = 6;

export function JobsPage() {
  const jobs = useAsked<{ items: Job[] }>("/v1/jobs", { all: may("read others-job"), limit: 200 }, 5000);
  const fleet = useSignal(live.machine);
  return (
    <section>
      <Failure problem={jobs.problem} />
      {jobs.value && !jobs.value.items.length && <p>No jobs. strata job submit sends one.</p>}
      {Boolean(jobs.value?.items.length) && (
      <Table head={["job", "owner", "where", "state", "submitted", "began", "ran", "nodes"]} label="Jobs">
        {jobs.value?.items.map((job) => (
          <tr key={job.id}>
            <th scope="row">
              {job.name || job.id} {job.name && <small>{job.id}</small>}
            </th>
            <td>{job.owner}</td>
            <td>{[...new Set([job.target, job.queue])].filter(Boolean).join(" / ")}</td>
            <td>
              <Badge word={job.outcome ?? job.state} /> {job.tasks > 1 && `${job.tasks_ended} of ${job.tasks} tasks `}
              <small>
                {[job.signal ? `signal ${job.signal}` : job.status ? `exit status ${job.status}` : "", job.reason].filter(Boolean).join("; ")}
              </small>
            </td>
            <td>
              <Time at={job.submitted} />
            </td>
            <td>{job.began ? <Time at={job.began} /> : "–"}</td>
            <td>{job.began ? span((job.ended ?? Date.now() / 1000) - job.began) : "–"}</td>
            <td>
              {job.nodes.slice(0, SHOWN).map((name) =>
                // A job may run where no node of this fleet is: on the controller, or at another site.
                (fleet?.position(name) ?? -1) >= 0 ? (
                  <a key={name} href={nodePath(name)}>
                    {name}{" "}
                  </a>
                ) : (
                  `${name} `
                ),
              )}
              {job.nodes.length > SHOWN && `and ${job.nodes.length - SHOWN} more`}
            </td>
          </tr>
        ))}
      </Table>
      )}
    </section>
  );
}
