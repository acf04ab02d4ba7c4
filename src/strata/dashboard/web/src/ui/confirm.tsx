/** A question before something is done: what will happen, to what, and why (where a reason is kept). */
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../api";
import { Failure } from "./parts";

export interface Question {
  title: string;
  /** What will happen, in a sentence. */
  text: string;
  button: string;
  /** What stands on the button that asks, where it is something else. */
  label?: string;
  /** Ask for a reason, too: it is shown to whoever asks why. */
  reason?: boolean;
  /** A choice to make first. */
  choices?: string[];
  act: (reason: string, choice: string) => Promise<unknown>;
}

/** Asks; `done` is called when the thing was done or given up. */
export function Confirm({ question, done }: { question: Question; done: (did: boolean) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const did = useRef(false);
  const [reason, setReason] = useState("");
  const [choice, setChoice] = useState(question.choices?.[0] ?? "");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => dialog.current?.showModal(), []);
  // Closed before it goes from the page, so that the browser gives the focus back to where it was.
  const close = (): void => dialog.current?.close();
  const go = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await question.act(reason, choice);
      did.current = true;
      if (dialog.current) close();
      else done(true); // it was closed meanwhile
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem(0, String(error), ""));
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} onClose={() => done(did.current)} aria-labelledby="question">
      <article>
        <h3 id="question">{question.title}</h3>
        <p>{question.text}</p>
        <form onSubmit={go}>
          {question.choices && (
            <label>
              Which
              <select value={choice} onChange={(event) => setChoice(event.currentTarget.value)}>
                {question.choices.map((one) => (
                  <option key={one}>{one}</option>
                ))}
              </select>
            </label>
          )}
          {question.reason && (
            <label>
              Reason
              <input value={reason} required maxLength={200} onInput={(event) => setReason(event.currentTarget.value)} />
            </label>
          )}
          <Failure problem={problem} />
          <footer>
            <button type="button" class="secondary" onClick={close}>
              Cancel
            </button>
            <button type="submit" disabled={busy} aria-busy={busy}>
              {question.button}
            </button>
          </footer>
        </form>
      </article>
    </dialog>
  );
}

/** A button that asks before it does. */
export function Ask({ question, after }: { question: Question; after?: () => void }) {
  const [open, setOpen] = useState(false);
  const close = (did: boolean): void => {
    setOpen(false);
    if (did) after?.();
  };
  return (
    <>
      <button type="button" class="secondary outline" onClick={() => setOpen(true)}>
        {question.label ?? question.button}
      </button>
      {open && <Confirm question={question} done={close} />}
    </>
  );
}
