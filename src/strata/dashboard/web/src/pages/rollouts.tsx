/** Rollouts: how far each is, what it waits for, what failed; and the hand on its brake. */
import { act } from "../api";
import { nodePath } from "../router";
import { may } from "../session";
import { Ask } from "../ui/confirm";
import { Badge, Failure, Share, Time } from "../ui/parts";
import { useAsked } from "../ui/use";

interface Rollout {
  name: string;
  state: string;
  author: string;
  started: number;
  ended: number | null;
  spec: { set: Record<string, string | string[]>; note: string };
  wave: number;
  waves: number;
  counts: { nodes: number; ready: number; failed: number; failed_nodes: string };
  waits_for: string;
  reason: string;
  buckets: { name: string; nodes: number; most: number; out: number }[];
  events: { time: number; author: string; text: string }[];
}

/** Nodes that failed, by what they say of it. */
function Failures({ nodes }: { nodes: string }) {
  const failed = useAsked<{ items: { name: string; fault: string; state: string }[] }>("/v1/nodes", { select: nodes, fields: "name,fault,state", limit: 1000 }, 10_000);
  const causes = new Map<string, string[]>();
  for (const { name, fault, state } of failed.value?.items ?? []) {
    const cause = fault || (state === "ready" ? "ready again" : state);
    causes.set(cause, [...(causes.get(cause) ?? []), name]);
  }
  return (
    <ul aria-label="Failures by cause">
      {[...causes].map(([cause, names]) => (
        <li key={cause}>
          {names.length}: {cause} –{" "}
          {names.slice(0, 5).map((name) => (
            <a key={name} href={nodePath(name)}>
              {name}{" "}
            </a>
          ))}
          {names.length > 5 && "…"}
        </li>
      ))}
    </ul>
  );
}

const ENDED = ["done", "rolled-back", "aborted"];

export function RolloutsPage() {
  const rollouts = useAsked<{ items: Rollout[] }>("/v1/rollouts", {}, 2000);
  // Those that go on come first: they are what somebody may want to stop.
  const all = rollouts.value?.items ?? [];
  const items = [...all.filter(({ state }) => !ENDED.includes(state)), ...all.filter(({ state }) => ENDED.includes(state))];
  return (
    <section>
      <Failure problem={rollouts.problem} />
      {rollouts.value && !items.length && <p>No rollout yet. strata rollout start begins one.</p>}
      {items.map((rollout) => (
        <One key={rollout.name} rollout={rollout} after={rollouts.again} />
      ))}
    </section>
  );
}

/** Which wave it is, in words; each wave is a mark beside them. */
function Waves({ wave, waves, done }: { wave: number; waves: number; done: boolean }) {
  const marks = waves <= 12 ? Array.from({ length: waves }, (_, place) => (done || place + 1 < wave ? "●" : place + 1 === wave ? "◐" : "○")) : [];
  return (
    <span class="waves">
      Wave {wave} of {waves} <span aria-hidden="true">{marks.join("")}</span>
    </span>
  );
}

function One({ rollout, after }: { rollout: Rollout; after: () => void }) {
  const { name, counts } = rollout;
  const path = `/v1/rollouts/${encodeURIComponent(name)}`;
  const change = Object.entries(rollout.spec.set).map(([variable, value]) => `${variable}=${[value].flat().join(" or ")}`);
  return (
    <article data-testid={`rollout-${name}`}>
      <h3>
        {name} <Badge word={rollout.state} testid={`rollout-state-${name}`} />
      </h3>
      <p>
        {change.join(", ")} – by {rollout.author}, <Time at={rollout.started} />
        {rollout.ended && <> until <Time at={rollout.ended} /></>}. {rollout.spec.note}
      </p>
      <p>
        <Waves wave={rollout.wave} waves={rollout.waves} done={rollout.state === "done"} /> <Share value={counts.ready} of={counts.nodes} label="Nodes that have it" />
        {counts.failed > 0 && <strong> {counts.failed} failed: {counts.failed_nodes}</strong>}
      </p>
      {counts.failed_nodes && <Failures nodes={counts.failed_nodes} />}
      {rollout.state !== "running" && rollout.reason && <p>Reason: {rollout.reason}</p>}
      {rollout.waits_for && <p>Waits for {rollout.waits_for}</p>}
      <ul>
        {rollout.buckets.map((bucket) => (
          <li key={bucket.name}>
            {bucket.name === "the rollout" ? "Out of service now" : `Out of service in ${bucket.name}`}: {bucket.out}, at most {bucket.most} of its {bucket.nodes} nodes
          </li>
        ))}
      </ul>
      {may("change rollout") && !ENDED.includes(rollout.state) && (
        <div class="actions" role="group" aria-label={`Actions on ${name}`}>
          {rollout.state === "running" && (
            <Ask
              after={after}
              question={{
                title: `Pause ${name}?`,
                text: "No further nodes begin. Those that have begun are finished.",
                button: "Pause",
                reason: true,
                act: (reason) => act("POST", `${path}/pause`, { reason }),
              }}
            />
          )}
          {["paused", "stopped"].includes(rollout.state) && (
            <Ask
              after={after}
              question={{
                title: `Resume ${name}?`,
                text: "The rollout continues. Nodes that have failed are rolled back, and no longer count as failed.",
                button: "Resume",
                act: () => act("POST", `${path}/resume`),
              }}
            />
          )}
          <Ask
            after={after}
            question={{
              title: `Abort ${name}?`,
              text: "Nodes that have not begun get their earlier desires back.",
              button: "Abort",
              reason: true,
              choices: ["leave nodes that have changed", "roll all nodes back"],
              act: (reason, choice) => act("POST", `${path}/abort`, { reason, rollback: choice === "roll all nodes back" }),
            }}
          />
        </div>
      )}
      <details>
        <summary>What happened ({rollout.events.length})</summary>
        <ol class="timeline">
          {[...rollout.events].reverse().map((event, place) => (
            <li key={place}>
              <Time at={event.time} /> {event.text} <small>{event.author}</small>
            </li>
          ))}
        </ol>
      </details>
    </article>
  );
}
