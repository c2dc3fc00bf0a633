// Runs the page. One conversation is shown, and one answer runs at a time.
(() => {
  const $ = (id) => document.getElementById(id);
  const kMostTitle = 60, kSaveEvery = 500;  // the first counts characters, the second milliseconds
  let conversation = store.create();
  let views = [];
  let model = null;    // this is the answer of /props
  let several = false;  // the server has several models, and #choice says which one is meant
  let running = null;  // this is {controller, view} of the answer that comes
  let editing = null;  // the composer will replace this message; the draft waits
  let unused = null;   // this conversation has not begun
  const facts = {context: 0, speed: 0, first: 0};

  const number = (value, digits = 0) => value.toLocaleString(undefined,
      {minimumFractionDigits: digits, maximumFractionDigits: digits});
  // A button of this notice with the text `label` calls `again`.
  const notice = (text, again, label = 'Try again') => {
    $('notice').replaceChildren(text);
    $('notice').hidden = !text;
    if (!again) return;
    const button = markdown.element('button', label);
    button.type = 'button';
    button.addEventListener('click', again);
    $('notice').append(' ', button);
  };

  const showFacts = () => {
    const rows = [];
    if (model) {
      rows.push(['weights', `${model.type}, ${number(model.bits_per_weight, 2)} bits`]);
      rows.push(['cache', model.cache_type]);
      rows.push(['context', `${number(facts.context)} of ${number(model.n_ctx)}`]);
    }
    if (facts.first) rows.push(['first token', number(facts.first, 2) + ' s']);
    if (facts.speed) rows.push(['tokens/s', number(facts.speed, 1)]);
    $('facts').replaceChildren(...rows.map(([name, value]) => {
      const row = markdown.element('div', markdown.element('dt', name),
                                   markdown.element('dd', value));
      row.dataset.fact = name;
      return row;
    }));
  };

  // Saves a conversation together with what other tabs have written to it.
  const save = (which = conversation) => {
    if (!which.messages.length && !which.systemChanged) return;
    if (store.pull(which) && which === conversation) refresh();
    try {
      store.save(which);
    } catch {
      notice('This browser has no room left for conversations. Delete some to make room.');
    }
  };

  // Shows the list of conversations.
  const showList = () => {
    $('list').replaceChildren(...store.all().map(({id, title}) => {
      const open = markdown.element('button', title || 'New conversation');
      Object.assign(open, {type: 'button', className: 'title'});
      open.addEventListener('click', () => select(id));
      const remove = markdown.element('button', '\u00d7');
      Object.assign(remove, {type: 'button', className: 'remove', ariaLabel: 'Delete ' + title});
      remove.addEventListener('click', () => {
        store.remove(id);
        if (id === conversation.id) begin();
        else showList();
      });
      const row = markdown.element('li', open, remove);
      row.classList.toggle('current', id === conversation.id);
      return row;
    }));
  };

  // Shows the messages.
  const atEnd = () => $('log').scrollHeight - $('log').scrollTop - $('log').clientHeight < 80;
  const scrollToEnd = () => { $('log').scrollTop = $('log').scrollHeight; };
  const actionsOf = (message) => {
    const at = () => conversation.messages.indexOf(message);
    if (message.role === 'user') return {Edit: () => edit(at())};
    const more = ['length', 'stopped', 'error'].includes(message.reason) && message.content;
    return {Retry: () => retry(at()), ...(more && {Continue: () => resume(at())})};
  };
  const append = (message) => {
    const view = new MessageView(message, actionsOf(message));
    views.push(view);
    $('log').append(view.node);
    return view;
  };
  const showConversation = () => {
    views = [];
    $('log').replaceChildren();
    conversation.messages.forEach(append);
    $('system').value = conversation.system;
    facts.context = conversation.context ?? 0;
    facts.first = facts.speed = 0;
    endEditing();
    notice('');
    showFacts();
    showList();
    scrollToEnd();
  };
  // Shows the changes of other tabs. Messages that did not change keep their nodes.
  const refresh = () => {
    const follow = atEnd(), shown = new Map(views.map((view) => [view.message, view]));
    views = conversation.messages.map((message) => {
      const view = shown.get(message);
      const same = view && (view === running?.view || view.version === message.changed);
      return same ? view : new MessageView(message, actionsOf(message));
    });
    $('log').replaceChildren(...views.map(({node}) => node));
    if (running && !views.includes(running.view)) running.controller.abort();
    if (editing && !conversation.messages.includes(editing)) {
      editing = null;
      keepDraft();
    }
    if (document.activeElement !== $('system')) $('system').value = conversation.system;
    if (follow) scrollToEnd();
  };
  const truncate = (length) => {
    const gone = conversation.messages.splice(length);
    conversation.removed.push(...gone.map(({id}) => id));
    views.splice(length).forEach((view) => view.node.remove());
  };

  // A typed text belongs to its conversation.
  const fitInput = () => {
    $('input').style.height = 'auto';
    $('input').style.height = $('input').scrollHeight + 2 + 'px';
  };
  const setInput = (text) => {
    $('input').value = text;
    fitInput();
  };
  const keepDraft = () => editing || store.saveDraft(conversation.id, $('input').value);
  const endEditing = () => {
    editing = null;
    pictures.set([]);
    setInput(store.draft(conversation.id));
  };

  const openConversation = (next) => {
    running?.controller.abort();
    conversation = next;
    history.replaceState(null, '', '#' + conversation.id);
    $('side').classList.remove('open');
    showConversation();
    $('input').focus();
  };
  const begin = () => {
    if (!unused || unused.messages.length || unused.systemChanged) unused = store.create();
    openConversation(unused);
  };
  const select = (id) => openConversation(store.find(id) ?? store.create());

  // Returns the path and the body of the request to the server.
  const requestOf = (messages, goesOn) => {
    const {max_tokens, ...sampling} = settings.values();
    const limit = {...(max_tokens && {max_tokens}), ...(several && {model: model.model_alias})};
    if (!model.has_chat_template) {  // without a template the model continues a text
      const prompt = [conversation.system, ...messages.map((m) => m.content)].join('');
      return ['v1/completions', {prompt, max_tokens: 512, ...limit, ...sampling}];
    }
    const system = conversation.system ? [{role: 'system', content: conversation.system}] : [];
    const said = messages.map(({role, content, images = []}) => ({role, content: !images.length
        ? content
        : [...images.map((url) => ({type: 'image_url', image_url: {url}})),
           {type: 'text', text: content}]}));
    const rest = goesOn ? {continue_final_message: true, add_generation_prompt: false} : {};
    return ['v1/chat/completions', {messages: [...system, ...said], ...rest, ...limit,
                                    ...sampling}];
  };

  const setRunning = (next) => {
    running = next;
    $('send').hidden = Boolean(next);
    $('stop').hidden = !next;
  };

  // Updates the figures of an answer as it comes: counts pieces until the server has sent its own
  // figures.
  const measure = (start, first, pieces, part) => {
    const now = performance.now();
    facts.first = (first - start) / 1000;
    if (pieces > 1) facts.speed = (pieces - 1) / ((now - first) / 1000);
    if (part.usage) {
      facts.context = conversation.context = part.usage.total_tokens;
      const tokens = part.usage.completion_tokens;
      if (tokens > 1 && now > first) facts.speed = (tokens - 1) / ((now - first) / 1000);
    } else if (part.content || part.reasoning) {
      ++facts.context;
    }
  };

  // Lets the model answer to the messages before `view`, which gets the text.
  const run = async (view, goesOn) => {
    const owner = conversation, {message} = view, controller = new AbortController();
    const mine = {controller, view};
    const [path, body] = requestOf(
        owner.messages.slice(0, owner.messages.indexOf(message) + (goesOn ? 1 : 0)), goesOn);
    setRunning(mine);
    notice('');
    message.reason = 'stopped';  // this stays if the page goes away
    view.show(true);
    let start = performance.now(), first = 0, pieces = 0, saved = start, drawn = 0;
    const draw = () => {
      drawn = 0;
      const follow = atEnd();
      view.show(true);
      showFacts();
      if (follow) scrollToEnd();
    };
    try {
      for await (const part of client.answer(path, body, controller.signal)) {
        message.content += part.content;
        if (part.reasoning) message.reasoning = (message.reasoning ?? '') + part.reasoning;
        if (part.content || part.reasoning) {
          first ||= performance.now();
          ++pieces;
        }
        if (part.reason) message.reason = part.reason;
        store.touch(message);
        if (conversation !== owner) break;
        if (first) measure(start, first, pieces, part);
        drawn ||= requestAnimationFrame(draw);
        if (performance.now() - saved > kSaveEvery) {
          saved = performance.now();
          save();
        }
      }
    } catch (error) {
      if (error.name !== 'AbortError') {
        message.reason = 'error';
        if (conversation === owner) tellFailure(error, message);
      }
    }
    if (drawn) cancelAnimationFrame(drawn);
    if (first && facts.speed) {
      message.figures =
          `${number(facts.speed, 1)} tokens/s, first token after ${number(facts.first, 2)} s`;
    }
    store.touch(message);
    save(owner);
    if (running === mine) setRunning(null);
    if (conversation !== owner) return catchUp();
    const follow = atEnd(), old = views.indexOf(view);
    if (old < 0) return;  // another tab has removed it
    views[old] = new MessageView(message, actionsOf(message));
    view.node.replaceWith(views[old].node);
    if (follow) scrollToEnd();
    showFacts();
    showList();
  };

  // Shows a notice that offers what can be done. The question stays.
  const tellFailure = (error, message) => {
    const at = () => conversation.messages.indexOf(message);
    if (message.content) notice(error.message, () => resume(at()), 'Continue the answer');
    else notice(error.message, () => retry(at()));
  };

  const answer = () => {
    const view = append(store.add(conversation, 'assistant', ''));
    save();
    showList();
    scrollToEnd();
    return run(view, false);
  };

  const retry = (at) => {
    if (running || at < 0) return;
    truncate(at);
    answer();
  };
  const resume = (at) => {
    if (running || at < 0) return;
    truncate(at + 1);
    run(views[at], true);
  };
  const edit = (at) => {
    if (running) return;
    editing = conversation.messages[at];
    setInput(editing.content);
    pictures.set(editing.images ?? []);
    $('input').focus();
  };

  const send = async () => {
    const owner = conversation;
    if (running || !$('input').value.trim()) return;
    if (!model && !await loadModel(send, true)) return;
    const content = $('input').value;
    if (running || conversation !== owner || !content.trim()) return;
    if (editing) truncate(conversation.messages.indexOf(editing));
    else store.saveDraft(conversation.id, '');
    const message = store.add(conversation, 'user', content), images = pictures.get();
    if (images.length) message.images = images;
    conversation.title ||= content.trim().replace(/\s+/g, ' ').slice(0, kMostTitle);
    append(message);
    endEditing();
    answer();
  };

  // Takes images that were pasted or dropped.
  const takePictures = (event, data) => {
    const files = pictures.files(data);
    if (!files.length) return;
    event.preventDefault();
    if (model && !model.modalities?.vision) return notice('This model takes no images.');
    pictures.add(files).then(() => notice(''), (error) => notice(error.message));
    $('input').focus();
  };

  // Shows the models of a server that has several. Returns whether the chosen one is loaded.
  const listModels = async () => {
    const all = await client.models(), loaded = all.filter(({status}) => status.value === 'loaded');
    several = true;
    $('choice').replaceChildren(...all.map(({id}) => markdown.element('option', id)));
    $('choice').value = (loaded[0] ?? all[0]).id;
    $('choice').hidden = false;
    $('model').hidden = true;
    return loaded.length > 0;
  };

  // `again` is called when a later attempt succeeds. Of several models none is loaded only because
  // the page was opened, unless it is needed now.
  const loadModel = async (again = () => loadModel(), now = false) => {
    try {
      model = await client.props(several && $('choice').value);
      if (model.role === 'router') {
        model = null;
        if (!await listModels() && !now) return false;
        model = await client.props($('choice').value);
      }
    } catch (error) {
      notice(error.message, again);
      return false;
    }
    $('model').textContent = document.title = model.model_alias;
    if (!model.has_chat_template)
      $('input').placeholder = 'Write the beginning of a text: this model continues it';
    settings.setDefaults(model.default_generation_settings.params);
    notice('');
    showFacts();
    return true;
  };

  // The rest is about buttons and keys.
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  $('stop').addEventListener('click', () => running?.controller.abort());
  $('new').addEventListener('click', begin);
  $('settings-open').addEventListener('click', settings.open);
  $('side-open').addEventListener('click', () => $('side').classList.add('open'));
  $('side-close').addEventListener('click', () => $('side').classList.remove('open'));
  $('delete-all').addEventListener('click', () => {
    if (!confirm('Delete all conversations that this browser has stored?')) return;
    store.all().forEach(({id}) => store.remove(id));
    begin();
  });
  $('system').addEventListener('change', () => {
    conversation.system = $('system').value;
    conversation.systemChanged = Date.now();
    save();
    showList();
  });
  $('choice').addEventListener('change', async () => {
    const load = async () => {
      if (!await loadModel(load, true)) model = null;
    };
    await load();
  });
  $('key').value = store.key();
  $('key').addEventListener('change', () => {
    store.saveKey($('key').value.trim());
    loadModel();
  });
  $('input').addEventListener('input', () => {
    fitInput();
    keepDraft();
  });
  $('input').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener('paste', (event) => takePictures(event, event.clipboardData));
  document.addEventListener('drop', (event) => takePictures(event, event.dataTransfer));
  document.addEventListener('dragover', (event) => {
    if (event.dataTransfer?.types.includes('Files')) event.preventDefault();
  });
  document.addEventListener('keydown', (event) => {
    const control = event.ctrlKey || event.metaKey;
    if (event.key === 'Escape' && !$('settings').open) {
      running?.controller.abort();
      $('side').classList.remove('open');
      if (editing) endEditing();
    } else if (control && event.key === ',') {
      event.preventDefault();
      settings.open();
    } else if (control && event.altKey && event.key.toLowerCase() === 'n') {
      event.preventDefault();
      begin();
    }
  });
  // Takes over the changes of another tab to the shown conversation. An answer that comes is saved
  // again and again, so changes that the other tab lacks wait for that.
  const catchUp = () => {
    if (store.isDeleted(conversation)) return begin();
    const news = store.pull(conversation);
    if (news) refresh();
    if (news?.exceeds && !running) save();
  };
  window.addEventListener('storage', ({key}) => {
    if (store.isSettings(key)) settings.load();
    if (!store.isConversation(key)) return;
    catchUp();
    showList();
  });

  const id = location.hash.slice(1), known = store.find(id);
  if (id && !known && store.draft(id)) unused = store.create(id);
  if (known) openConversation(known);
  else begin();
  loadModel();
})();
