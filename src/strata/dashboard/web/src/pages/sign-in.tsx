/** Signing in: at the site's identity provider, or by a token. (A certificate needs no page.) */
import { useEffect, useState } from "preact/hooks";
import { Problem, get } from "../api";
import { leave, providerWay, type Way } from "../provider";
import { keepToken, who, type Who } from "../session";
import { Failure } from "../ui/parts";

export function SignIn({ refusal }: { refusal: Problem | undefined }) {
  const [way, setWay] = useState<Way | null>(null);
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(refusal);
  useEffect(() => void providerWay().then(setWay), []);
  const there = async (): Promise<void> => {
    // Asked again: it may not have been heard when the page was loaded.
    const now = way?.authorize ? way : await providerWay();
    if (now?.authorize) await leave(now);
    else setProblem(new Problem(0, "the identity provider does not answer", "try again in half a minute, or use a token"));
  };
  const go = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    keepToken(text.trim());
    try {
      who.set(await get<Who>("/v1/auth/whoami"));
    } catch (error) {
      setProblem(error as Problem);
    }
    setBusy(false);
  };
  return (
    <main class="container sign-in">
      <article>
        <h1>Strata</h1>
        {way && (
          <button type="button" class="provider" onClick={() => void there()}>
            Sign in at {new URL(way.issuer).host}
          </button>
        )}
        <form onSubmit={go}>
          <label>
            Token
            <input
              type="password"
              autoComplete="off"
              required
              autoFocus
              placeholder="strata_…"
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </label>
          <Failure problem={problem} />
          <button type="submit" class={way ? "secondary" : undefined} disabled={busy} aria-busy={busy}>
            Sign in with a token
          </button>
        </form>
        <small>
          Make one on the controller: <code>strata auth token create --role viewer</code>. It stays in this tab, until you close it.
          With a client certificate of this site you need none.
        </small>
      </article>
    </main>
  );
}
