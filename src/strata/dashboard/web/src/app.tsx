/** The frame: who is signed in, which pages there are, which of them is shown. */
import type { FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, type Problem } from "./api";
import { live } from "./machine/fleet";
import { MachinePage } from "./machine/page";
import { NodePage } from "./node/page";
import { AlertsPage } from "./pages/alerts";
import { AuditPage } from "./pages/audit";
import { ImagesPage } from "./pages/images";
import { JobsPage } from "./pages/jobs";
import { ModelPage } from "./pages/model";
import { PowerPage } from "./pages/power";
import { RolloutsPage } from "./pages/rollouts";
import { SignIn } from "./pages/sign-in";
import { comeBack } from "./provider";
import { route } from "./router";
import { may, signOut, token, who, type Who } from "./session";
import { useSignal } from "./signal";
import { useAsked } from "./ui/use";
import { away, runs, status, watchStatus } from "./status";

interface Page {
  path: string;
  title: string;
  shows: FunctionComponent;
  /** The layer that it is of; empty: it is always there. */
  layer?: string;
  right: string;
}

const PAGES: Page[] = [
  { path: "machine", title: "Machine", shows: MachinePage, right: "read node" },
  { path: "model", title: "Model", shows: ModelPage, right: "read model" },
  { path: "rollouts", title: "Rollouts", shows: RolloutsPage, layer: "platform", right: "read rollout" },
  { path: "power", title: "Power", shows: PowerPage, layer: "power", right: "read power" },
  { path: "images", title: "Images", shows: ImagesPage, layer: "provisioning", right: "read image" },
  { path: "jobs", title: "Jobs", shows: JobsPage, layer: "jobs", right: "read job" },
  { path: "alerts", title: "Alerts", shows: AlertsPage, layer: "hardware", right: "read alert" },
  { path: "audit", title: "Audit", shows: AuditPage, right: "read audit" },
];

export function App() {
  const user = useSignal(who);
  const [tried, setTried] = useState(false);
  const [refusal, setRefusal] = useState<Problem>();
  // A sign-in that comes back from the provider, a certificate, or the token that this tab has already.
  useEffect(() => {
    comeBack()
      .catch((problem: Problem) => setRefusal(problem))
      .then(() => get<Who>("/v1/auth/whoami"))
      .then(who.set.bind(who), () => undefined)
      .finally(() => setTried(true));
  }, []);
  useEffect(() => {
    if (!user) return;
    const done = may("read status") ? watchStatus() : () => undefined;
    if (may("read node")) live.start();
    return () => {
      live.stop();
      done();
    };
  }, [Boolean(user)]);
  if (!user) return tried ? <SignIn refusal={refusal} /> : <main class="container" aria-busy="true" />;
  return <Frame user={user} />;
}

function Frame({ user }: { user: Who }) {
  const [chosen, name] = useSignal(route);
  const now = useSignal(status);
  const silence = useSignal(away);
  const pages = PAGES.filter(({ layer, right }) => may(right) && (!layer || runs(layer)));
  const page = chosen ?? pages[0]?.path ?? "";
  const shown = pages.find(({ path }) => path === page);
  const alerts = useAsked<{ open: number }>(pages.some(({ path }) => path === "alerts") ? "/v1/alerts" : "", { limit: 1 }, 10_000);
  const open = alerts.value?.open ?? 0;
  const title = page === "node" ? name : shown?.title;
  useEffect(() => {
    document.title = title ? `${title} – Strata` : "Strata";
  }, [title]);
  return (
    <>
      <header class="top">
        <a class="skip" href="#/machine" onClick={(event) => { event.preventDefault(); document.querySelector("main")?.focus(); }}>
          Skip to the page
        </a>
        <strong>Strata</strong>
        <nav aria-label="Pages">
          {pages.map(({ path, title }) => (
            <a key={path} href={`#/${path}`} aria-current={path === page ? "page" : undefined}>
              {title}
              {path === "alerts" && open > 0 && (
                <>
                  {" "}
                  <span class="open" title={`${open} open`}>
                    {open}
                  </span>
                </>
              )}
            </a>
          ))}
        </nav>
        <span class="who" title={user.scope.length ? `limited to ${user.scope.join(", ")}` : "the whole fleet"}>
          {user.name} ({user.role})
          {token() && (
            <button type="button" class="plain" onClick={signOut}>
              Sign out
            </button>
          )}
        </span>
      </header>
      {[...(now?.troubles ?? []), silence, now?.freezes ? "Frozen: nothing is started for the fleet, or a part of it" : ""].filter(Boolean).map((trouble) => (
        <p key={trouble} role="alert" class="failure banner">
          {trouble}
        </p>
      ))}
      <main tabIndex={-1}>{page === "node" && name ? <NodePage key={name} name={name} /> : shown ? <shown.shows key={shown.path} /> : now || !may("read status") ? <p>There is no such page here.</p> : <p aria-busy="true" />}</main>
    </>
  );
}
