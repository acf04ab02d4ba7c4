/** Signing in by a token. (A certificate needs no page; a flow through an identity provider ends in a token, and would begin here.) */
import { useState } from "preact/hooks";
import { Problem, get } from "../api";
import { keepToken, who, type Who } from "../session";
import { Failure } from "../ui/parts";

export function SignIn() {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
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
          <button type="submit" disabled={busy} aria-busy={busy}>
            Sign in
          </button>
        </form>
        <small>
          Make one on the controller: <code>strata auth token create --role viewer</code>. It stays in this tab, until you close it.
          A token of the site's identity provider is as good. With a client certificate of this site you need none.
        </small>
      </article>
    </main>
  );
}
