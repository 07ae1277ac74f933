// @ts-check
/**
 * The list of conversations beside the page: what this browser remembers and what the server has, with ways to
 * rename and to remove one.
 */

import { ApiError, call } from "./chat-api.js";
import { button, byId, make } from "./chat-dom.js";
import { conversations, entryOf, forget, hide, merge, remember, titleFrom } from "./chat-store.js";

/** @typedef {import("./chat-store.js").Listed} Listed */

const PAGE = 200;
const MOST_PAGES = 5;
/** Conversations of unknown content that are asked for their first words, after each look at the server's list. */
const MOST_ASKED = 20;
const LONGEST_NAME = 200;

export class List {
  #place = byId("list", HTMLUListElement);
  #dialog = new Dialogs();
  #current;
  #gone;
  #shown = "";
  #looking = false;
  /** Whether the last look at the server's list failed. */
  failed = false;

  /**
   * @param {() => string} current The id of the conversation that is shown.
   * @param {(id: string, deleted: boolean) => void} gone Told when one was taken off the list by the person.
   */
  constructor(current, gone) {
    this.#current = current;
    this.#gone = gone;
  }

  show() {
    const current = this.#current();
    const list = conversations();
    const key = JSON.stringify([current, list.map(({ id, title }) => [id, title])]);
    if (key === this.#shown) return;
    this.#shown = key;
    this.#place.replaceChildren(...list.map(({ id, title }) => this.#item(id, title || "Untitled", id === current)));
  }

  /** Bring the list together with the server's. */
  async look() {
    if (this.#looking) return;
    this.#looking = true;
    const askedAt = Date.now();
    try {
      /** @type {Listed[]} */
      const all = [];
      let cursor = "";
      for (let page = 0; page < MOST_PAGES; page += 1) {
        const query = cursor ? `&cursor=${encodeURIComponent(cursor)}` : "";
        const { items, nextCursor } = await call("GET", `/api/sessions?limit=${PAGE}${query}`);
        all.push(...items);
        cursor = nextCursor ?? "";
        if (!cursor) break;
      }
      merge(all, cursor === "", askedAt);
      this.failed = false;
      this.show();
      await this.#askTitles();
    } catch (error) {
      this.failed = true;
      if (!(error instanceof ApiError)) throw error;
    } finally {
      this.#looking = false;
    }
  }

  /** Give a conversation another name, on the server too. @param {string} id */
  async rename(id) {
    const entry = entryOf(id);
    if (!entry) return;
    await this.#dialog.rename(entry.title, async (title) => {
      const path = `/api/sessions/${id}`;
      const { metadata } = await call("GET", path);
      await call("PATCH", path, { metadata: { ...metadata, title } });
      remember(id, { title });
      this.show();
    });
  }

  /** @param {string} id @param {string} name */
  async #remove(id, name) {
    await this.#dialog.remove(name, {
      forget: async () => {
        hide(id);
        this.#gone(id, false);
      },
      destroy: async () => {
        try {
          await call("DELETE", `/api/sessions/${id}`);
        } catch (error) {
          if (!(error instanceof ApiError && error.code === "not_found")) throw error;
        }
        forget(id);
        this.#gone(id, true);
      },
    });
    this.show();
  }

  /** @param {string} id @param {string} name @param {boolean} current */
  #item(id, name, current) {
    const attributes = { href: `#${id}`, title: name, ...(current ? { "aria-current": "page" } : {}) };
    const remove = button("×", () => void this.#remove(id, name), { "aria-label": `Remove ${name}`, title: "Remove…" });
    remove.addEventListener("click", (event) => event.stopPropagation());
    return make("li", { "data-current": String(current) }, make("a", attributes, name), remove);
  }

  /** Name what has no name by its first words. */
  async #askTitles() {
    const unnamed = conversations().filter(({ title }) => title === "");
    for (const { id } of unnamed.slice(0, MOST_ASKED)) {
      const { items } = await call("GET", `/api/sessions/${id}/messages?limit=5`);
      const first = items.find((/** @type {any} */ message) => message.role === "user");
      if (first && entryOf(id)?.title === "") remember(id, { title: titleFrom(first.content) });
      this.show();
    }
  }
}

/** Asks before something is renamed or removed; one question at a time. */
class Dialogs {
  #place = byId("list-dialog", HTMLDialogElement);

  /**
   * @param {string} title
   * @param {(title: string) => Promise<void>} rename
   */
  rename(title, rename) {
    const input = make("input", { type: "text", "aria-label": "Name of the conversation" });
    input.maxLength = LONGEST_NAME;
    input.value = title;
    return this.#ask("Rename", [input], [], {
      label: "Save",
      action: async () => {
        const name = input.value.trim();
        if (name !== "" && name !== title) await rename(name);
      },
    });
  }

  /**
   * @param {string} name
   * @param {{forget: () => Promise<void>, destroy: () => Promise<void>}} actions
   */
  remove(name, actions) {
    const text = make("p", {}, `“${name}” can be deleted for good, on every device, or only be taken off this browser's list.`);
    const only = { label: "Only from this list", action: actions.forget };
    return this.#ask("Remove the conversation?", [text], [only], { label: "Delete for good", action: actions.destroy, look: "danger" });
  }

  /**
   * @param {string} heading
   * @param {readonly HTMLElement[]} content
   * @param {readonly {label: string, action: () => Promise<void>}[]} others
   * @param {{label: string, action: () => Promise<void>, look?: string}} main What Enter does in a field.
   */
  #ask(heading, content, others, main) {
    const dialog = this.#place;
    const told = make("p", { role: "alert", class: "error" });
    /** @param {() => Promise<void>} action */
    const run = async (action) => {
      try {
        await action();
        dialog.close();
      } catch (error) {
        told.textContent = error instanceof Error ? error.message : String(error);
      }
    };
    const buttons = make("div", { class: "buttons" }, button("Cancel", () => dialog.close()));
    for (const { label, action } of others) buttons.append(button(label, () => void run(action)));
    buttons.append(make("button", { type: "submit", class: main.look ?? "send" }, main.label));
    const form = make("form", {}, make("h2", { id: "list-heading" }, heading), ...content, told, buttons);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void run(main.action);
    });
    dialog.replaceChildren(form);
    dialog.showModal();
    return new Promise((done) => dialog.addEventListener("close", () => done(undefined), { once: true }));
  }
}
