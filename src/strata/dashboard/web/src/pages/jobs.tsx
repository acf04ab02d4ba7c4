/** Jobs at all schedulers, newest first: one's own, or everybody's for whoever may see those. */
import { nodePath } from "../router";
import { may } from "../session";
import { Failure, Table, Time } from "../ui/parts";
import { useAsked } from "../ui/use";

interface Job {
  id: string;
  name: string;
  owner: string;
  target: string;
  queue: string | null;
  state: string;
  outcome: string | null;
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
  return (
    <section>
      <Failure problem={jobs.problem} />
      {jobs.value && !jobs.value.items.length && <p>No jobs. strata job submit sends one.</p>}
      <Table head={["job", "owner", "where", "state", "submitted", "began", "ended", "nodes"]} label="Jobs">
        {jobs.value?.items.map((job) => (
          <tr key={job.id}>
            <th scope="row" title={job.id}>
              {job.name || job.id}
            </th>
            <td>{job.owner}</td>
            <td>{[job.target, job.queue].filter(Boolean).join(" / ")}</td>
            <td title={job.reason}>
              {job.outcome ?? job.state}
              {job.tasks > 1 && ` (${job.tasks_ended} of ${job.tasks} tasks)`} {job.reason && <small>{job.reason}</small>}
            </td>
            <td>
              <Time at={job.submitted} />
            </td>
            <td>{job.began ? <Time at={job.began} /> : "–"}</td>
            <td>{job.ended ? <Time at={job.ended} /> : "–"}</td>
            <td>
              {job.nodes.slice(0, SHOWN).map((name) => (
                <a key={name} href={nodePath(name)}>
                  {name}{" "}
                </a>
              ))}
              {job.nodes.length > SHOWN && `and ${job.nodes.length - SHOWN} more`}
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
