// What stays in the browser: conversations and settings in its local storage, the key until the tab
// is closed. A conversation is {id, title, updated, system, messages: [{role, content, ...}]}.
const store = (() => {
  const kPrefix = 'walsh.conversation.', kSettings = 'walsh.settings', kKey = 'walsh.key';

  const read = (key, otherwise) => {
    try {
      return JSON.parse(localStorage.getItem(key)) ?? otherwise;
    } catch {
      return otherwise;  // written by something else
    }
  };
  const usable = (c) => c && typeof c.id === 'string' && Array.isArray(c.messages) &&
      c.messages.every((m) => typeof m.role === 'string' && typeof m.content === 'string');

  return {
    all() {
      const keys = Object.keys(localStorage).filter((key) => key.startsWith(kPrefix));
      const found = keys.map((key) => read(key, null)).filter(usable);
      return found.sort((a, b) => b.updated - a.updated);
    },
    find: (id) => {
      const found = read(kPrefix + id, null);
      return usable(found) ? found : null;
    },
    // Throws when the storage is full.
    save(conversation) {
      conversation.updated = Date.now();
      localStorage.setItem(kPrefix + conversation.id, JSON.stringify(conversation));
    },
    remove: (id) => localStorage.removeItem(kPrefix + id),
    create: () => ({
      id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8),
      title: '', updated: Date.now(), system: '', messages: [],
    }),
    isOurs: (key) => key === null || key.startsWith(kPrefix),
    settings: () => read(kSettings, {}),
    saveSettings: (settings) => localStorage.setItem(kSettings, JSON.stringify(settings)),
    key: () => sessionStorage.getItem(kKey) ?? '',
    saveKey: (key) => sessionStorage.setItem(kKey, key),
  };
})();
