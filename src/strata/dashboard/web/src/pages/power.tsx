/** Power: the machine and its cabinets against the limit, who draws most, and what manages it. */
import { useMemo } from "preact/hooks";
import { nodePath } from "../router";
import { Failure, Table, watts } from "../ui/parts";
import { Plot, type History } from "../ui/plot";
import { useAsked } from "../ui/use";

interface Summary {
  name: string;
  nodes: number;
  measured: number;
  now: number | null;
  average: number | null;
  most: number | null;
  caps: number | null;
}

interface Site {
  limit: number | null;
  policy: string;
  over: number | null;
  error: string;
}

interface Policy {
  name: string;
  time: number;
  doc: string;
  limit: number | null;
}

/** What is drawn of what may be: a bar, and the most in words. */
function Against({ value, most, label }: { value: number | null; most: number; label: string }) {
  return (
    <span class="against">
      {watts(most)} <progress value={value ?? 0} max={most} aria-label={label} />
    </span>
  );
}

export function PowerPage() {
  const system = useAsked<{ system: Summary }>("/v1/power/system", {}, 10_000);
  const history = useAsked<History>("/v1/power/history", {}, 15_000);
  const cabinets = useAsked<{ items: Summary[] }>("/v1/power/cabinets", {}, 10_000);
  const top = useAsked<{ items: { node: string; power: number | null; temperature: number | null; cap: number | null }[] }>("/v1/power/nodes", { sort: "-power", limit: 20 }, 10_000);
  const policies = useAsked<{ items: Policy[]; site: Site }>("/v1/power/policies", {}, 10_000);
  const jobs = useAsked<{ items: { job: string; user: string; nodes: number; end: number | null; average: number | null; joules: number | null }[] }>("/v1/power/jobs", {}, 15_000);
  const site = policies.value?.site;
  const limit = site?.limit ?? null;
  // What the limit was before the policy was last changed, nobody says.
  const since = policies.value?.items.find(({ name }) => name === site?.policy)?.time ?? 0;
  const lines = useMemo(() => {
    const drawn = { label: "drawn", values: history.value?.values ?? [], colour: "#0a84c6" };
    const times = history.value?.times ?? [];
    const most = { label: "limit", values: times.map((time) => (time >= since ? limit : null)), colour: "#d55e00", dashed: true };
    return limit === null ? [drawn] : [drawn, most];
  }, [history.value, limit, since]);
  const now = system.value?.system;
  return (
    <section>
      <Failure problem={system.problem} />
      <p class="large" data-testid="system-power">
        {watts(now?.now)} drawn{limit !== null && ` of at most ${watts(limit)}`}
        {limit !== null && <progress value={now?.now ?? 0} max={limit} aria-label="The machine against its limit" />}
        <small>
          {now ? ` ${now.measured} of ${now.nodes} nodes measured` : ""}
          {site?.over ? ` – ${watts(site.over)} over the limit may be drawn; caps are being lowered` : ""}
          {site?.error ? ` – ${site.error}` : ""}
        </small>
      </p>
      {history.value && <Plot times={history.value.times} lines={lines} unit={history.value.unit} label="Power of the machine in the last hour" />}
      <div class="columns">
        <article>
          <h3>Cabinets</h3>
          <Table head={["cabinet", "now", "most in 5 min", "caps allow"]} label="Cabinets">
            {cabinets.value?.items.slice(0, 200).map((one) => (
              <tr key={one.name}>
                <th scope="row">
                  {one.name || "no known place"}{" "}
                  {one.measured < one.nodes && (
                    <small>
                      {one.measured} of {one.nodes} nodes measured
                    </small>
                  )}
                </th>
                <td>{watts(one.now)}</td>
                <td>{watts(one.most)}</td>
                <td>{one.caps === null ? "not all are capped" : <Against value={one.now} most={one.caps} label={`${one.name} against its caps`} />}</td>
              </tr>
            ))}
          </Table>
        </article>
        <article>
          <h3>Who draws most</h3>
          <Table head={["node", "power", "cap", "temperature"]} label="Top consumers">
            {top.value?.items.map((one) => (
              <tr key={one.node}>
                <th scope="row">
                  <a href={nodePath(one.node)}>{one.node}</a>
                </th>
                <td>{watts(one.power)}</td>
                <td>{one.cap ? watts(one.cap) : "–"}</td>
                <td>{one.temperature === null ? "–" : `${Math.round(one.temperature)} °C`}</td>
              </tr>
            ))}
          </Table>
        </article>
        <article>
          <h3>Policies</h3>
          {policies.value && !policies.value.items.length && <p>None: nothing limits what the site draws. strata power simulate tries one.</p>}
          <ul>
            {policies.value?.items.map((policy) => (
              <li key={policy.name}>
                <strong>{policy.name}</strong> {policy.name === site?.policy ? "runs" : "does not run"}
                {policy.limit !== null && `, at most ${watts(policy.limit)}`} {policy.doc}
              </li>
            ))}
          </ul>
          <h3>Energy of jobs</h3>
          {jobs.value && !jobs.value.items.length && <p>No job has been recorded yet.</p>}
          {Boolean(jobs.value?.items.length) && (
          <Table head={["job", "user", "nodes", "W per node", "MJ"]} label="Power of jobs">
            {jobs.value?.items.slice(0, 30).map((job) => (
              <tr key={job.job}>
                <th scope="row">{job.job}</th>
                <td>{job.user}</td>
                <td>{job.nodes}</td>
                <td>{watts(job.average)}</td>
                <td>{job.joules === null ? "–" : (job.joules / 1e6).toFixed(2)}</td>
              </tr>
            ))}
          </Table>
          )}
        </article>
      </div>
    </section>
  );
}
