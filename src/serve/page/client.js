// Requests to the server that the page came from.
const client = (() => {
  const headers = () => {
    const key = store.key();
    return {'Content-Type': 'application/json', ...(key && {Authorization: 'Bearer ' + key})};
  };

  const fail = async (response) => {
    const text = await response.text();
    let message = text.slice(0, 500);
    try {
      message = JSON.parse(text).error.message;
    } catch {
      // not one of ours: shown as it is
    }
    const hint = response.status === 401 ? ' (Settings has a field for it)' : '';
    throw new Error((message || 'the server answered ' + response.status) + hint);
  };

  const props = async () => {
    const response = await fetch('props', {headers: headers()});
    return response.ok ? response.json() : fail(response);
  };

  // The objects of a stream of events.
  async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      text += value;
      const lines = text.split('\n');
      text = lines.pop();
      for (const line of lines) {
        if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
        const object = JSON.parse(line.slice(6));
        if (object.error) throw new Error(object.error.message);
        yield object;
      }
    }
  }

  // Streams an answer: {content, reasoning, usage, timings, reason} as they come.
  async function* answer(path, body, signal) {
    const options = {method: 'POST', headers: headers(), signal, body: JSON.stringify(
        {...body, stream: true, stream_options: {include_usage: true}})};
    const response = await fetch(path, options);
    if (!response.ok) await fail(response);
    for await (const {choices, usage, timings} of events(response)) {
      const {delta = {}, text, finish_reason: reason} = choices?.[0] ?? {};
      yield {content: delta.content ?? text ?? '', reasoning: delta.reasoning_content ?? '',
             usage, timings, reason};
    }
  }

  return {props, answer};
})();
