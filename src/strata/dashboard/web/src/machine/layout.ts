/** Where each node's cell is on the floor: by its place (cabinet, chassis, slot) or by its group. Pure. */
import type { Machine } from "./fleet";

export interface Block {
  name: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Cells by position, in whole numbers; what is drawn together has a block around it. */
export class Layout {
  readonly grid: Int32Array;

  constructor(
    readonly width: number,
    readonly height: number,
    readonly x: Uint16Array,
    readonly y: Uint16Array,
    readonly blocks: Block[],
  ) {
    this.grid = new Int32Array(width * height).fill(-1);
    for (let position = 0; position < x.length; position++) this.grid[y[position]! * width + x[position]!] = position;
  }

  /** The node at a cell, or -1. */
  at(x: number, y: number): number {
    if (x < 0 || y < 0 || x >= this.width || y >= this.height) return -1;
    return this.grid[Math.floor(y) * this.width + Math.floor(x)] ?? -1;
  }
}

/** A block before it has its place: where its members are within it. */
interface Plan {
  name: string;
  width: number;
  height: number;
  members: { position: number; x: number; y: number }[];
}

const GAP = 2;
const XNAME = /^x(\d+)(?:c(\d+))?(?:s(\d+))?(?:b(\d+))?(?:n(\d+))?/;

/** Cabinets side by side; in each the chassis one below the other, slots from left to right. */
export function byPlace(machine: Machine): Layout {
  const cabinets = new Map<number, Map<number, Map<number, number[]>>>();
  const elsewhere: number[] = [];
  machine.locations.forEach((location, position) => {
    const found = XNAME.exec(location);
    if (!found) {
      elsewhere.push(position);
      return;
    }
    const [cabinet, chassis, slot] = [found[1], found[2], found[3]].map((text) => Number(text ?? 0)) as [number, number, number];
    const inCabinet = entry(cabinets, cabinet, () => new Map<number, Map<number, number[]>>());
    entry(entry(inCabinet, chassis, () => new Map<number, number[]>()), slot, () => []).push(position);
  });
  const plans = sorted(cabinets).map(([number, chassis]) => cabinetPlan(`x${number}`, chassis, machine));
  if (elsewhere.length) plans.push(squarePlan(plans.length ? "no known place" : "", elsewhere));
  return arranged(plans, machine.names.length);
}

/** A block for each group; a node in several is in the smallest of them. */
export function byGroup(machine: Machine): Layout {
  const of = new Array<string>(machine.names.length).fill("");
  const sizes = Object.entries(machine.groups).map(([name, runs]) => ({ name, runs, size: runs.reduce((sum, [first, last]) => sum + last - first + 1, 0) }));
  for (const { name, runs } of sizes.sort((one, other) => other.size - one.size || (one.name < other.name ? -1 : 1)))
    for (const [first, last] of runs) of.fill(name, first, last + 1);
  const members = new Map<string, number[]>();
  of.forEach((name, position) => entry(members, name, () => []).push(position));
  const plans = [...members].sort(([one], [other]) => (one < other ? -1 : 1)).map(([name, nodes]) => squarePlan(name ? `@${name}` : "no group", nodes));
  return arranged(plans, machine.names.length);
}

function cabinetPlan(name: string, chassis: Map<number, Map<number, number[]>>, machine: Machine): Plan {
  const members: Plan["members"] = [];
  let top = 0;
  let width = 1;
  for (const [, slots] of sorted(chassis)) {
    let rows = 1;
    sorted(slots).forEach(([, nodes], column) => {
      nodes.sort((one, other) => (machine.locations[one]! < machine.locations[other]! ? -1 : 1));
      nodes.forEach((position, row) => members.push({ position, x: column, y: top + row }));
      rows = Math.max(rows, nodes.length);
    });
    width = Math.max(width, slots.size);
    top += rows;
  }
  return { name, width, height: Math.max(top, 1), members };
}

function squarePlan(name: string, nodes: number[]): Plan {
  const width = Math.max(1, Math.ceil(Math.sqrt(nodes.length * 1.6)));
  const members = nodes.map((position, place) => ({ position, x: place % width, y: Math.floor(place / width) }));
  return { name, width, height: Math.ceil(nodes.length / width) || 1, members };
}

/** Blocks in rows, so that the whole is about as wide as a screen. */
function arranged(plans: Plan[], count: number): Layout {
  const area = plans.reduce((sum, plan) => sum + (plan.width + GAP) * (plan.height + GAP), 0);
  const wide = Math.max(...plans.map((plan) => plan.width + GAP), Math.ceil(Math.sqrt(area * 1.8)), 1);
  const x = new Uint16Array(count);
  const y = new Uint16Array(count);
  const blocks: Block[] = [];
  let [left, top, deep, right] = [0, GAP, 0, 0];
  for (const plan of plans) {
    if (left && left + plan.width > wide) [left, top, deep] = [0, top + deep + GAP, 0];
    for (const member of plan.members) {
      x[member.position] = left + member.x;
      y[member.position] = top + member.y;
    }
    blocks.push({ name: plan.name, x: left, y: top, width: plan.width, height: plan.height });
    left += plan.width + GAP;
    right = Math.max(right, left - GAP);
    deep = Math.max(deep, plan.height);
  }
  return new Layout(Math.max(right, 1), top + deep + 1, x, y, blocks);
}

function entry<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) map.set(key, (value = make()));
  return value;
}

function sorted<V>(map: Map<number, V>): [number, V][] {
  return [...map].sort(([one], [other]) => one - other);
}
