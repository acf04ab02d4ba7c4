/** The model as a graph: a box per variable, its values with how many nodes have them, its mutations with how many are on the way. */
import { useEffect, useMemo, useState } from "preact/hooks";
import type { JSX } from "preact";
import { DOING, live } from "../machine/fleet";
import { useSignal } from "../signal";
import { Failure } from "../ui/parts";
import { useAsked } from "../ui/use";

interface Variable {
  name: string;
  values: string[];
  open: boolean;
  doc: string;
}

interface Mutation {
  name: string;
  variable: string;
  start: string[];
  to: string;
  destructive: boolean;
  cost: number;
}

interface Model {
  variables: Record<string, Variable>;
  mutations: Record<string, Mutation>;
}

interface Drawn {
  width: number;
  height: number;
  boxes: { value: string; x: number; y: number; width: number; height: number }[];
  arrows: { names: string[]; points: { x: number; y: number }[]; x: number; y: number; destructive: boolean }[];
}

export function ModelPage() {
  const model = useAsked<Model>("/v1/model");
  if (!model.value) return <Failure problem={model.problem} />;
  return (
    <section>
      <p>Each box is a value of a variable, with the number of nodes that have it now. Each arrow is a mutation, with the number of nodes that it is changing. Choose a value to see its nodes. Where a value can be anything, <em>wanted</em> is the one that a node should have and <em>other</em> any other; which there are is listed below.</p>
      <div class="graphs">
        {Object.values(model.value.variables).map((variable) => (
          <VariableGraph key={variable.name} variable={variable} mutations={Object.values(model.value!.mutations).filter((one) => one.variable === variable.name)} />
        ))}
      </div>
    </section>
  );
}

/** An open variable can have any value: what the planner tells apart is drawn, and the values are counted beside it. */
function VariableGraph({ variable, mutations }: { variable: Variable; mutations: Mutation[] }) {
  const machine = useSignal(live.machine);
  const column = machine?.columns.get(variable.name);
  const counts = new Map(column?.counts());
  const doing = new Map(machine?.columns.get(DOING)?.counts());
  const [drawn, setDrawn] = useState<Drawn>();
  const symbols = useMemo(() => [...(variable.open ? ["absent", "other", "wanted"] : variable.values), "unknown"], [variable]);
  useEffect(() => {
    void draw(symbols, mutations).then(setDrawn);
  }, [variable.name]);
  const link = (value: string): string => `#/machine?by=${variable.name}&select=${encodeURIComponent(`fact:${variable.name}=${value}`)}`;
  return (
    <article>
      <h3>{variable.name}</h3>
      {variable.doc && <small>{variable.doc}</small>}
      {drawn && (
        <svg viewBox={`0 0 ${drawn.width} ${drawn.height}`} width={drawn.width} height={drawn.height} preserveAspectRatio="xMinYMin" role="group" aria-label={`Values of ${variable.name} and the steps between them`}>
          <defs>
            <marker id={`head-${variable.name}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
              <path d="M0 0 8 4 0 8z" fill="currentColor" />
            </marker>
          </defs>
          {drawn.arrows.map((arrow) => {
            const here = arrow.names.reduce((sum, name) => sum + (doing.get(name) ?? 0), 0);
            return (
              <g key={arrow.names.join()} class={`arrow${here ? " busy" : ""}${arrow.destructive ? " destructive" : ""}`}>
                <path d={"M" + arrow.points.map(({ x, y }) => `${x} ${y}`).join(" L")} marker-end={`url(#head-${variable.name})`} />
                <text x={arrow.x} y={arrow.y - 4}>
                  {arrow.names.join(", ")}
                  {here ? `: ${here}` : ""}
                </text>
              </g>
            );
          })}
          {drawn.boxes.map((box) => {
            const plain = !variable.open || box.value === "absent" || box.value === "unknown";
            const shape: JSX.Element = (
              <g class="value">
                <rect x={box.x - box.width / 2} y={box.y - box.height / 2} width={box.width} height={box.height} rx="6" />
                <text x={box.x} y={box.y - 2}>
                  {box.value}
                </text>
                {plain && (
                  <text x={box.x} y={box.y + 14} class="count" data-testid={`count-${variable.name}-${box.value}`}>
                    {counts.get(box.value) ?? 0}
                  </text>
                )}
              </g>
            );
            return plain ? (
              <a key={box.value} href={link(box.value)}>
                {shape}
              </a>
            ) : (
              shape
            );
          })}
        </svg>
      )}
      {variable.open && (
        <ul class="values">
          {[...counts].filter(([value]) => !symbols.includes(value)).slice(0, 12).map(([value, count]) => (
            <li key={value}>
              <a href={link(value)}>{value}</a> {count}
            </li>
          ))}
        </ul>
      )}
    </article>
  );
}

/** Places for values and steps, by dagre. */
async function draw(symbols: string[], mutations: Mutation[]): Promise<Drawn> {
  const { Graph, layout } = await import("@dagrejs/dagre");
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 40, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const value of symbols) graph.setNode(value, { width: Math.max(64, value.length * 8 + 16), height: 42 });
  const between = new Map<string, Mutation[]>();
  for (const mutation of mutations)
    for (const start of mutation.start.includes("*") ? symbols : mutation.start) {
      if (start === mutation.to || !symbols.includes(start)) continue;
      const key = `${start}\n${mutation.to}`;
      between.set(key, [...(between.get(key) ?? []), mutation]);
    }
  for (const [key, steps] of between) {
    const [start = "", to = ""] = key.split("\n");
    graph.setEdge(start, to, { width: steps.map((step) => step.name).join(", ").length * 6 + 30, height: 16, labelpos: "c", steps });
  }
  layout(graph);
  const size = graph.graph() as { width?: number; height?: number };
  return {
    width: size.width ?? 100,
    height: size.height ?? 60,
    boxes: graph.nodes().map((value) => ({ value, ...(graph.node(value) as { x: number; y: number; width: number; height: number }) })),
    arrows: graph.edges().map((edge) => {
      const found = graph.edge(edge) as unknown as { points: { x: number; y: number }[]; x: number; y: number; steps: Mutation[] };
      return { names: found.steps.map((step) => step.name), destructive: found.steps.some((step) => step.destructive), points: found.points, x: found.x, y: found.y };
    }),
  };
}
