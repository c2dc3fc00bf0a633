// What the next answers are sampled with. Empty fields are left to the model's own settings.
const settings = (() => {
  // Name in requests, label, least, most, step.
  const kFields = [
    ['temperature', 'Temperature', 0, 1000, 0.05],
    ['top_k', 'Top k', 0, 1000000, 1],
    ['top_p', 'Top p', 0, 1, 0.01],
    ['min_p', 'Min p', 0, 1, 0.01],
    ['repeat_penalty', 'Repeat penalty', 0.01, 1000, 0.01],
    ['presence_penalty', 'Presence penalty', -100, 100, 0.1],
    ['frequency_penalty', 'Frequency penalty', -100, 100, 0.1],
    ['typical_p', 'Typical p', 0, 1, 0.01],
    ['top_n_sigma', 'Top n sigma', -1, 1000, 0.1],
    ['xtc_probability', 'XTC probability', 0, 1, 0.01],
    ['xtc_threshold', 'XTC threshold', 0, 1, 0.01],
    ['dry_multiplier', 'DRY multiplier', 0, 1000, 0.1],
    ['dry_base', 'DRY base', 1, 1000, 0.05],
    ['dry_allowed_length', 'DRY allowed length', 1, 1000000, 1],
    ['max_tokens', 'Maximum tokens', 1, 1000000000, 1],
    ['seed', 'Seed', 0, Number.MAX_SAFE_INTEGER, 1],
  ];
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

  for (const [name, label, min, max, step] of kFields) {
    const input = markdown.element('input');
    Object.assign(input, {type: 'number', name, min, max, step: step === 1 ? 1 : 'any'});
    input.addEventListener('change', save);
    inputs.set(name, input);
    document.getElementById('sampling').append(markdown.element('label', label, input));
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
    // Shows what the model does by itself.
    setDefaults(params) {
      for (const [name, input] of inputs)
        input.placeholder = params[name] === undefined ? '' : +params[name].toFixed(3);
      inputs.get('max_tokens').placeholder = 'no limit';
      inputs.get('seed').placeholder = 'random';
    },
  };
})();
