/** Power: the machine and its cabinets against the limit, who draws most, and what manages it. */
import { useMemo } from "preact/hooks";
import { nodePath } from "../router";
import { Failure, Table, watts } from "../ui/parts";
import { Plot } from "../ui/plot";
import { useAsked } from "../ui/use";

interface Summary {
  name: string;
  nodes: number;
  measured: number;
  now: number | null;
  least: number | null;
  average: number | null;
  most: number | null;
}

interface Site {
  limit: number | null;
  policy: string;
  allowed: number | null;
  over: number | null;
  error: string;
}

interface Policy {
  name: string;
  enabled?: boolean;
  doc: string;
  limit: number | null;
}

interface History {
  unit: string;
  times: number[];
  values: (number | null)[];
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
  const lines = useMemo(() => {
    const drawn = { label: "drawn", values: history.value?.values ?? [], colour: "#e69f00" };
    const most = { label: "limit", values: drawn.values.map(() => limit), colour: "#d55e00" };
    return limit === null ? [drawn] : [drawn, most];
  }, [history.value, limit]);
  const now = system.value?.system;
  return (
    <section>
      <Failure problem={system.problem} />
      <p class="large" data-testid="system-power">
        {watts(now?.now)} drawn{limit !== null && ` of at most ${watts(limit)}`}
        <small>
          {now ? ` ${now.measured} of ${now.nodes} nodes measured` : ""}
          {site?.over ? ` – ${watts(site.over)} too much may be drawn; it is being lowered` : ""}
          {site?.error ? ` – ${site.error}` : ""}
        </small>
      </p>
      {history.value && <Plot times={history.value.times} lines={lines} unit={history.value.unit} label="Power of the machine in the last hour" />}
      <div class="columns">
        <article>
          <h3>Cabinets</h3>
          <Table head={["cabinet", "now", "most in the last hour", "nodes"]} label="Cabinets">
            {cabinets.value?.items.slice(0, 200).map((one) => (
              <tr key={one.name}>
                <th scope="row">{one.name || "no place known"}</th>
                <td>{watts(one.now)}</td>
                <td>{watts(one.most)}</td>
                <td>
                  {one.measured} of {one.nodes}
                </td>
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
          {policies.value && !policies.value.items.length && <p>None.</p>}
          <ul>
            {policies.value?.items.map((policy) => (
              <li key={policy.name}>
                <strong>{policy.name}</strong> {policy.name === site?.policy ? "(enabled)" : ""} {policy.limit !== null && watts(policy.limit)} {policy.doc}
              </li>
            ))}
          </ul>
          <h3>Jobs</h3>
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
        </article>
      </div>
    </section>
  );
}
