/** What the API says of one node, as far as it is shown. */

interface Fact {
  value: string;
  source: string;
  age: number | null;
  detail: string;
}

interface Desire {
  values: string[];
  author: string;
  origin: string;
}

export interface Node {
  name: string;
  location: string;
  nid: number | null;
  role: string;
  architecture: string;
  groups: string[];
  state: string;
  facts: Record<string, Fact>;
  desires: Record<string, Desire>;
  hold: { author: string; reason: string } | null;
  doing: { mutation: string; since: number } | null;
  fault: string;
}

export interface Why {
  summary: string;
  lines: string[];
  blocked_by: { kind: string; name: string; detail: string }[];
}

export interface Plan {
  status: string;
  steps: { mutation: string; variable: string; to: string; cost: number; destructive: boolean }[];
  reason: string;
}

export interface Transition {
  time: number;
  variable: string;
  old: string;
  new: string;
  source: string;
  cause: string;
}
