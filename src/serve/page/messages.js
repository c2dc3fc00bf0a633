// Shows the messages of a conversation on the page.
const copyText = async (text, button) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // pages that did not come over https may not do this
    const field = markdown.element('textarea', text);
    document.body.append(field);
    field.select();
    document.execCommand('copy');
    field.remove();
  }
  const label = button.textContent;
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = label; }, 1200);
};

class MessageView {
  // `actions` is {label: function}; the actions are offered below the message when it is complete.
  constructor(message, actions) {
    const {element} = markdown;
    this.message = message;
    this.version = message.changed;
    this.who = element('div', message.role === 'user' ? 'You' : 'Model');
    this.who.className = 'who';
    this.body = element('div');
    this.body.className = 'body';
    this.tools = element('div');
    this.tools.className = 'tools';
    this.shown = element('div');
    this.shown.className = 'shown';
    this.shown.hidden = !message.images?.length;
    this.shown.append(...(message.images ?? []).map(pictures.image));
    this.node = element('article', this.who, this.shown, this.body, this.tools);
    this.node.className = 'message ' + message.role;
    this.markdown = new markdown.View(this.body);
    const copy = this.button('Copy', () => copyText(message.content, copy));
    for (const [label, run] of Object.entries(actions)) this.button(label, run);
    this.figures = element('span');
    this.figures.className = 'figures';
    this.tools.append(this.figures);
    this.show(false);
  }

  button(label, run) {
    const button = markdown.element('button', label);
    button.type = 'button';
    button.addEventListener('click', run);
    this.tools.append(button);
    return button;
  }

  showReasoning(text) {
    if (!text) return;
    if (!this.reasoning) {
      this.reasoning = markdown.element('div');
      const box = markdown.element('details', markdown.element('summary', 'Reasoning'));
      box.className = 'reasoning';
      box.append(this.reasoning);
      this.body.before(box);
    }
    this.reasoning.textContent = text;
  }

  // `running` says that more is to come.
  show(running) {
    const {role, content, reasoning, reason, figures} = this.message;
    if (role === 'user') this.body.textContent = content;
    else this.markdown.show(content);
    this.showReasoning(reasoning);
    this.body.classList.toggle('waiting', running && !content);
    this.tools.hidden = running;
    const ends = {length: 'reached its limit', stopped: 'stopped', error: 'incomplete'};
    this.figures.textContent = [figures, ends[reason]].filter(Boolean).join(' \u00b7 ');
  }
}
