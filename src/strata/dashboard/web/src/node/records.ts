/** What the API says of one node, as far as it is shown. */

export interface Fact {
  value: string;
  seen: number | null;
  source: string;
  age: number | null;
  implied: boolean;
  silence: { why?: string; reason?: string } | null;
  detail: string;
}

export interface Desire {
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
  labels: Record<string, string>;
  bmc: string;
  groups: string[];
  state: string;
  facts: Record<string, Fact>;
  desires: Record<string, Desire>;
  hold: { author: string; reason: string } | null;
  frozen: string;
  doing: { mutation: string; since: number; deadline: number } | null;
  fault: string;
}

export interface Why {
  summary: string;
  lines: string[];
  next: { mutation: string | null; observe: string[]; when: number | null } | null;
  blocked_by: { kind: string; name: string; detail: string }[];
}

export interface Plan {
  status: string;
  steps: { mutation: string; variable: string; to: string; cost: number; destructive: boolean }[];
  cost: number;
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
