// Keeps conversations and settings in the browser's local storage, which all tabs share, and the
// key and drafts until the tab is closed. A conversation is {id, title, updated, system,
// systemChanged, messages: [{id, time, changed, role, content, ...}], removed: [ids of messages]}.
// `images` of a message are data: URLs.
// Several tabs may change the same conversation: pull() merges what another one has written.
const store = (() => {
  const kPrefix = 'walsh.conversation.', kSettings = 'walsh.settings', kKey = 'walsh.key';
  const kDraft = 'walsh.draft.';
  const seen = new WeakMap();  // each conversation has the stored text that it contains

  const parse = (text, otherwise) => {
    try {
      return JSON.parse(text) ?? otherwise;
    } catch {
      return otherwise;  // something else has written it
    }
  };
  const usable = (c) => c && typeof c.id === 'string' && Array.isArray(c.messages) &&
      c.messages.every((m) => typeof m.role === 'string' && typeof m.content === 'string');
  // Returns the conversation, or null if it is none. Older versions of the page wrote fewer
  // members.
  const conversationOf = (text) => {
    const found = parse(text, null);
    if (!usable(found)) return null;
    found.removed = Array.isArray(found.removed) ? found.removed : [];
    found.system ??= '';
    found.systemChanged ??= 0;
    found.messages.forEach((message, i) => {
      message.id ??= String(i);
      message.time ??= i;
      message.changed ??= 0;
      if (!Array.isArray(message.images)) delete message.images;
    });
    return found;
  };
  const stored = (id) => localStorage.getItem(kPrefix + id);
  const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);

  // Keeps every message of both but for removed ones, in the order of time. Of two versions of a
  // message it keeps the later one. In whichever order tabs merge, they end with the same messages.
  const merge = (mine, theirs) => {
    mine.removed = [...new Set([...mine.removed, ...theirs.removed])];
    const gone = new Set(mine.removed), found = new Map(mine.messages.map((m) => [m.id, m]));
    for (const message of theirs.messages) {
      const known = found.get(message.id);
      if (!known) found.set(message.id, message);
      else if (message.changed > known.changed) Object.assign(known, message);
    }
    mine.messages = [...found.values()].filter(({id}) => !gone.has(id))
        .sort((a, b) => a.time - b.time || (a.id < b.id ? -1 : 1));
    if (theirs.systemChanged > mine.systemChanged)
      Object.assign(mine, {system: theirs.system, systemChanged: theirs.systemChanged});
    if (theirs.updated > mine.updated) mine.context = theirs.context;
    mine.title = theirs.title || mine.title;
  };
  // Returns whether `mine` has what `theirs` lacks.
  const exceeds = (mine, theirs) => {
    const gone = new Set(theirs.removed), found = new Map(theirs.messages.map((m) => [m.id, m]));
    return mine.systemChanged > theirs.systemChanged || mine.removed.some((id) => !gone.has(id)) ||
        mine.messages.some(({id, changed}) => !(found.get(id)?.changed >= changed));
  };

  return {
    all() {
      const keys = Object.keys(localStorage).filter((key) => key.startsWith(kPrefix));
      const found = keys.map((key) => conversationOf(localStorage.getItem(key))).filter(Boolean);
      return found.sort((a, b) => b.updated - a.updated);
    },
    find(id) {
      const text = stored(id), found = conversationOf(text);
      if (found) seen.set(found, text);
      return found;
    },
    // Takes over what another tab has written. Returns null if there is nothing new, otherwise
    // {exceeds}, which says whether the other tab lacks something, because both wrote at the same
    // time.
    pull(conversation) {
      const text = stored(conversation.id), theirs = conversationOf(text);
      if (!theirs || text === seen.get(conversation)) return null;
      seen.set(conversation, text);
      merge(conversation, theirs);
      return {exceeds: exceeds(conversation, theirs)};
    },
    // It was stored, and a tab has deleted it.
    isDeleted: (conversation) => seen.has(conversation) && stored(conversation.id) === null,
    // Saves a conversation; pull() has to be called before it. Throws when the storage is full.
    // Messages that were deleted stay deleted.
    save(conversation) {
      if (this.isDeleted(conversation)) return;
      conversation.updated = Date.now();
      const text = JSON.stringify(conversation);
      localStorage.setItem(kPrefix + conversation.id, text);
      seen.set(conversation, text);
    },
    remove(id) {
      localStorage.removeItem(kPrefix + id);
      this.saveDraft(id, '');
    },
    create: (id = newId()) => ({
      id, title: '', updated: Date.now(), system: '', systemChanged: 0, messages: [], removed: [],
    }),
    // Adds a message, which is later than all others.
    add(conversation, role, content) {
      const time = Math.max(Date.now(), (conversation.messages.at(-1)?.time ?? 0) + 1);
      const message = {id: newId(), time, changed: time, role, content};
      conversation.messages.push(message);
      return message;
    },
    touch(message) {
      message.changed = Math.max(Date.now(), message.changed + 1);
    },
    isConversation: (key) => key === null || key.startsWith(kPrefix),
    isSettings: (key) => key === null || key === kSettings,
    settings: () => parse(localStorage.getItem(kSettings), {}),
    saveSettings: (settings) => localStorage.setItem(kSettings, JSON.stringify(settings)),
    draft: (id) => sessionStorage.getItem(kDraft + id) ?? '',
    saveDraft(id, text) {
      try {
        if (text) sessionStorage.setItem(kDraft + id, text);
        else sessionStorage.removeItem(kDraft + id);
      } catch {
        // It is too long to be kept, so it is on the page only.
      }
    },
    key: () => sessionStorage.getItem(kKey) ?? '',
    saveKey: (key) => sessionStorage.setItem(kKey, key),
  };
})();
