/** One node: what it is beside what it should be, why it is not, what happened, what can be done. */
import { useEffect, useState } from "preact/hooks";
import { useSignal } from "../signal";
import { live, STATE } from "../machine/fleet";
import { looks, painted } from "../machine/colours";
import { may } from "../session";
import { runs } from "../status";
import { Failure, Table, Time, span } from "../ui/parts";
import { useAsked } from "../ui/use";
import { Actions } from "./actions";
import { Console } from "./console";
import { Hardware } from "./hardware";
import { NodePower } from "./power";
import type { Node, Plan, Transition, Why } from "./records";

/** Key, title, the right that it needs, the layer that it is of (empty: always there). */
const TABS: [string, string, string, string][] = [
  ["history", "History", "read node", ""],
  ["console", "Console", "read console", "hardware"],
  ["hardware", "Sensors and parts", "read bmc", "hardware"],
  ["power", "Power", "read power", "power"],
];

export function NodePage({ name }: { name: string }) {
  const path = `/v1/nodes/${encodeURIComponent(name)}`;
  const node = useAsked<Node>(path, {}, 3000);
  const why = useAsked<Why>(`${path}/why`, {}, 3000);
  const plan = useAsked<Plan>(`${path}/plan`, {}, 6000);
  const [tab, setTab] = useState("history");
  // The machine is live: what it shows of this node tells when to look again.
  const machine = useSignal(live.machine);
  const position = machine?.position(name) ?? -1;
  const glimpse = position >= 0 ? [...(machine?.columns.values() ?? [])].map((column) => column.word(position)).join() : "";
  const look = (): void => {
    node.again();
    why.again();
    plan.again();
  };
  useEffect(() => {
    if (glimpse) look();
  }, [glimpse]);
  if (!node.value) return node.problem ? <Failure problem={node.problem} /> : <p aria-busy="true">Loading {name} …</p>;
  const found = node.value;
  return (
    <section class="node">
      <hgroup>
        <h2>
          {found.name} <StateBadge state={found.state} />
        </h2>
        <p>
          {[found.location, found.nid !== null && `NID ${found.nid}`, found.role, found.architecture, ...found.groups.map((group) => `@${group}`)]
            .filter(Boolean)
            .join(" · ")}
        </p>
      </hgroup>
      <Actions node={found} after={look} />
      <div class="columns">
        <article aria-label="Why">
          <h3>Why</h3>
          <Failure problem={why.problem} />
          <p data-testid="why">{why.value?.summary ?? "…"}</p>
          <ul>
            {[...(why.value?.lines ?? []), ...(why.value?.blocked_by ?? []).map((one) => `${one.kind} ${one.name}: ${one.detail}`)].map((line, place) => (
              <li key={place}>{line}</li>
            ))}
          </ul>
          {found.doing && (
            <p>
              Under way: <strong>{found.doing.mutation}</strong> since <Time at={found.doing.since} />
            </p>
          )}
          <PlanList plan={plan.value} />
        </article>
        <article aria-label="Facts beside desires">
          <h3>Facts beside desires</h3>
          <FactTable node={found} />
        </article>
      </div>
      <div role="tablist" class="tabs" onKeyDown={besides}>
        {TABS.filter(([, , right, layer]) => may(right) && (!layer || runs(layer))).map(([key, title]) => (
          <button type="button" role="tab" aria-selected={tab === key} class={tab === key ? "" : "secondary outline"} key={key} onClick={() => setTab(key)}>
            {title}
          </button>
        ))}
      </div>
      {tab === "history" && <History path={path} stamp={glimpse} />}
      {tab === "console" && <Console path={path} />}
      {tab === "hardware" && <Hardware name={name} />}
      {tab === "power" && <NodePower name={name} />}
    </section>
  );
}

/** Arrows go from tab to tab, as in every list of tabs. */
function besides(event: KeyboardEvent): void {
  const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!way) return;
  const tabs = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=tab]")];
  const next = tabs[(tabs.indexOf(event.target as HTMLElement) + way + tabs.length) % tabs.length];
  next?.focus();
  next?.click();
}

export function StateBadge({ state }: { state: string }) {
  const known = live.machine.value?.columns.get(STATE)?.words ?? [];
  const look = looks([...new Set([...known, state])])[[...new Set([...known, state])].indexOf(state)]!;
  return (
    <span class="badge" data-testid="state" ref={painted(look)}>
      {state}
    </span>
  );
}

function PlanList({ plan }: { plan: Plan | undefined }) {
  if (!plan) return null;
  if (plan.status === "unreachable") return <p>It cannot get there: {plan.reason}</p>;
  if (!plan.steps.length) return null;
  return (
    <>
      <h4>Plan</h4>
      <ol>
        {plan.steps.map((step, place) => (
          <li key={place}>
            {step.mutation} ({step.variable} → {step.to}, about {span(step.cost)}){step.destructive && " – takes the node out"}
          </li>
        ))}
      </ol>
    </>
  );
}

function FactTable({ node }: { node: Node }) {
  const variables = [...new Set([...Object.keys(node.desires), ...Object.keys(node.facts)])];
  return (
    <Table head={["", "is", "should be", "seen"]} label="Facts beside desires">
      {variables.map((variable) => {
        const [fact, desire] = [node.facts[variable], node.desires[variable]];
        const there = !desire || (fact !== undefined && desire.values.includes(fact.value));
        return (
          <tr key={variable} class={there ? "" : "differs"}>
            <th scope="row">{variable}</th>
            <td data-testid={`fact-${variable}`}>
              {fact?.value ?? "unknown"} {fact?.detail && <small>{fact.detail}</small>}
            </td>
            <td title={desire && `${desire.author}, ${desire.origin === "node" ? "on the node itself" : `document ${desire.origin}`}`}>
              {desire ? `${there ? "" : "≠ "}${desire.values.join(" or ")}` : "–"} {desire && <small>{desire.author}</small>}
            </td>
            <td>
              {fact?.age !== null && fact ? `${span(fact.age)} ago` : "never"} {fact?.source && <small>{fact.source}</small>}
            </td>
          </tr>
        );
      })}
    </Table>
  );
}

function History({ path, stamp }: { path: string; stamp: string }) {
  const history = useAsked<{ items: Transition[] }>(`${path}/history`, { limit: 200 }, 5000);
  useEffect(() => history.again(), [stamp]);
  if (!history.value) return <Failure problem={history.problem} />;
  return (
    <ol class="timeline" aria-label="History, newest first">
      {history.value.items.map((change, place) => (
        <li key={place}>
          <Time at={change.time} /> <strong>{change.variable}</strong> {change.old} → {change.new}{" "}
          <small>
            {change.cause}
            {change.source && ` (${change.source})`}
          </small>
        </li>
      ))}
    </ol>
  );
}
