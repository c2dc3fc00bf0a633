// The page: one conversation is shown, one answer runs at a time.
(() => {
  const $ = (id) => document.getElementById(id);
  const kMostTitle = 60, kSaveEvery = 500;  // characters, milliseconds
  let conversation = store.create();
  let views = [];
  let model = null;    // /props
  let running = null;  // AbortController of the answer that comes
  let editing = -1;    // the message that the composer will replace
  const facts = {context: 0, speed: 0, first: 0};

  const number = (value, digits = 0) => value.toLocaleString(undefined,
      {minimumFractionDigits: digits, maximumFractionDigits: digits});
  const notice = (text) => {
    $('notice').textContent = text;
    $('notice').hidden = !text;
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

  const save = () => {
    if (!conversation.messages.length && !conversation.system) return;
    try {
      store.save(conversation);
    } catch {
      notice('This browser has no room for more conversations: delete some.');
    }
  };

  // The list of conversations.
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
        showList();
      });
      const row = markdown.element('li', open, remove);
      row.classList.toggle('current', id === conversation.id);
      return row;
    }));
  };

  // The messages.
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
    editing = -1;
    notice('');
    showFacts();
    showList();
    scrollToEnd();
  };
  const truncate = (length) => {
    conversation.messages.length = length;
    views.splice(length).forEach((view) => view.node.remove());
  };

  const openConversation = (next) => {
    running?.abort();
    conversation = next;
    history.replaceState(null, '', '#' + conversation.id);
    $('side').classList.remove('open');
    showConversation();
    $('input').focus();
  };
  const begin = () => openConversation(store.create());
  const select = (id) => openConversation(store.find(id) ?? store.create());

  // What the server is asked.
  const requestOf = (messages, goesOn) => {
    const {max_tokens, ...sampling} = settings.values();
    const limit = max_tokens && {max_tokens};
    if (!model.has_chat_template) {  // the model continues a text
      const prompt = [conversation.system, ...messages.map((m) => m.content)].join('');
      return ['v1/completions', {prompt, max_tokens: 512, ...limit, ...sampling}];
    }
    const system = conversation.system ? [{role: 'system', content: conversation.system}] : [];
    const said = messages.map(({role, content}) => ({role, content}));
    const rest = goesOn ? {continue_final_message: true, add_generation_prompt: false} : {};
    return ['v1/chat/completions', {messages: [...system, ...said], ...rest, ...limit,
                                    ...sampling}];
  };

  const setRunning = (controller) => {
    running = controller;
    $('send').hidden = Boolean(controller);
    $('stop').hidden = !controller;
  };

  // The figures of an answer as it comes: by pieces until the server has told its own.
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
    const [path, body] = requestOf(
        owner.messages.slice(0, owner.messages.indexOf(message) + (goesOn ? 1 : 0)), goesOn);
    setRunning(controller);
    notice('');
    message.reason = 'stopped';  // if the page goes away
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
        if (conversation === owner) notice(error.message);
      }
    }
    if (drawn) cancelAnimationFrame(drawn);
    if (first && facts.speed) {
      message.figures =
          `${number(facts.speed, 1)} tokens/s, first after ${number(facts.first, 2)} s`;
    }
    if (running === controller) setRunning(null);
    if (conversation !== owner && !store.find(owner.id)) return;  // it was deleted
    try {
      store.save(owner);
    } catch {
      notice('This browser has no room for more conversations: delete some.');
    }
    if (conversation !== owner) return;
    const follow = atEnd(), old = views.indexOf(view);
    views[old] = new MessageView(message, actionsOf(message));
    view.node.replaceWith(views[old].node);
    if (follow) scrollToEnd();
    showFacts();
    showList();
  };

  const answer = () => {
    const message = {role: 'assistant', content: ''};
    conversation.messages.push(message);
    const view = append(message);
    save();
    showList();
    scrollToEnd();
    return run(view, false);
  };

  const retry = (at) => {
    if (running) return;
    truncate(at);
    answer();
  };
  const resume = (at) => {
    if (running) return;
    truncate(at + 1);
    run(views[at], true);
  };
  const edit = (at) => {
    if (running) return;
    editing = at;
    $('input').value = conversation.messages[at].content;
    fitInput();
    $('input').focus();
  };

  const send = async () => {
    const content = $('input').value;
    if (running || !content.trim()) return;
    if (!model && !await loadModel()) return;
    if (editing >= 0) truncate(editing);
    editing = -1;
    const message = {role: 'user', content};
    conversation.messages.push(message);
    conversation.title ||= content.trim().replace(/\s+/g, ' ').slice(0, kMostTitle);
    append(message);
    $('input').value = '';
    fitInput();
    answer();
  };

  const fitInput = () => {
    $('input').style.height = 'auto';
    $('input').style.height = $('input').scrollHeight + 2 + 'px';
  };

  const loadModel = async () => {
    try {
      model = await client.props();
    } catch (error) {
      notice(error.message);
      return false;
    }
    $('model').textContent = document.title = model.model_alias;
    if (!model.has_chat_template)
      $('input').placeholder = 'Text that the model continues (it has no chat template)';
    settings.setDefaults(model.default_generation_settings.params);
    notice('');
    showFacts();
    return true;
  };

  // Buttons and keys.
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  $('stop').addEventListener('click', () => running?.abort());
  $('new').addEventListener('click', begin);
  $('settings-open').addEventListener('click', settings.open);
  $('side-open').addEventListener('click', () => $('side').classList.add('open'));
  $('side-close').addEventListener('click', () => $('side').classList.remove('open'));
  $('delete-all').addEventListener('click', () => {
    if (!confirm('Delete all conversations of this browser?')) return;
    store.all().forEach(({id}) => store.remove(id));
    begin();
  });
  $('system').addEventListener('change', () => {
    conversation.system = $('system').value;
    save();
  });
  $('key').value = store.key();
  $('key').addEventListener('change', () => {
    store.saveKey($('key').value.trim());
    loadModel();
  });
  $('input').addEventListener('input', fitInput);
  $('input').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener('keydown', (event) => {
    const control = event.ctrlKey || event.metaKey;
    if (event.key === 'Escape' && !$('settings').open) {
      running?.abort();
      $('side').classList.remove('open');
      editing = -1;
    } else if (control && event.key === ',') {
      event.preventDefault();
      settings.open();
    } else if (control && event.altKey && event.key.toLowerCase() === 'n') {
      event.preventDefault();
      begin();
    }
  });
  window.addEventListener('storage', (event) => {
    if (store.isOurs(event.key)) showList();
  });

  const known = store.find(location.hash.slice(1));
  if (known) openConversation(known);
  else begin();
  loadModel();
})();
