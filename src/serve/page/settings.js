// Keeps the settings with which the next answers are sampled. Empty fields are left to the model's
// own settings.
const settings = (() => {
  // A field has its name in requests, least, most, step and meaning. The server writes its table of
  // options here.
  const kFields = [
    ...'@SAMPLING@',
    ['max_tokens', 1, 1000000000, 1, 'The answer ends after so many tokens'],
  ];
  // 'top_k' is shown as 'Top k', 'dry_base' as 'DRY base'.
  const labelOf = (name) => name.replaceAll('_', ' ')
      .replace(/^(dry|xtc)\b|^./, (start) => start.toUpperCase());
  const inputs = new Map();
  const box = document.getElementById('settings');

  const save = () => {
    const values = {};
    for (const [name, input] of inputs)
      if (input.value !== '' && input.validity.valid) values[name] = input.valueAsNumber;
    store.saveSettings(values);
  };
  const load = () => {
    const values = store.settings();
    for (const [name, input] of inputs) input.value = values[name] ?? '';
  };

  for (const [name, min, max, step, title] of kFields) {
    const input = markdown.element('input');
    Object.assign(input, {type: 'number', name, min, max, step, title});
    input.addEventListener('change', save);
    inputs.set(name, input);
    document.getElementById('sampling').append(markdown.element('label', labelOf(name), input));
  }
  load();
  document.getElementById('reset').addEventListener('click', () => {
    store.saveSettings({});
    load();
  });

  return {
    open: () => box.open || box.showModal(),
    values: () => store.settings(),
    load,  // another tab may have saved them
    // Shows the values that the model uses by itself.
    setDefaults(params) {
      for (const [name, input] of inputs)
        input.placeholder = params[name] === undefined ? '' : +params[name].toFixed(3);
      inputs.get('max_tokens').placeholder = 'no limit';
      inputs.get('seed').placeholder = 'random';
    },
  };
})();
