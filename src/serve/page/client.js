// Sends requests to the server that the page came from. Errors say in plain words what happened.
const client = (() => {
  const kLost = 'The connection to the server was lost before the answer was complete.';
  const kStrange = 'The server sent something that this page cannot read.';

  const headers = () => {
    const key = store.key();
    return {'Content-Type': 'application/json', ...(key && {Authorization: 'Bearer ' + key})};
  };

  // The browser's text of a network error ("Failed to fetch") says nothing to a reader.
  const explained = async (work, words) => {
    try {
      return await work();
    } catch (error) {
      throw error.name === 'AbortError' ? error : new Error(words);
    }
  };

  const request = async (path, options) => {
    const response = await explained(() => fetch(path, {...options, headers: headers()}),
        'The server cannot be reached. It may have been stopped, or the network is down.');
    if (response.ok) return response;
    const text = await explained(() => response.text(), kLost);
    let message = text.slice(0, 500);
    try {
      message = JSON.parse(text).error.message;
    } catch {
      // This error is not the server's own, so it is shown as it is.
    }
    const hint = response.status === 401 ? ' (enter it under Settings)' : '';
    throw new Error((message || `The server answered with the status ${response.status}.`) + hint);
  };

  const json = async (path) => {
    const response = await request(path);
    return explained(() => response.json(), kStrange);
  };
  // A server of several models describes itself where no name is given.
  const props = (name) => json('props' + (name ? '?model=' + encodeURIComponent(name) : ''));
  const models = async () => (await json('v1/models')).data;

  // Yields the objects of an event stream.
  async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '', complete = false;
    for (;;) {
      const {done, value} = await explained(() => reader.read(), kLost);
      if (done && !complete) throw new Error(kLost);
      if (done) return;
      text += value;
      const lines = text.split('\n');
      text = lines.pop();
      for (const line of lines) {
        if (line.startsWith('data: [DONE]')) complete = true;
        else if (line.startsWith('data: ')) {
          const object = await explained(() => JSON.parse(line.slice(6)), kStrange);
          if (object.error) throw new Error(object.error.message);
          yield object;
        }
      }
    }
  }

  // Streams an answer, which yields {content, reasoning, usage, timings, reason} as they come.
  async function* answer(path, body, signal) {
    const response = await request(path, {method: 'POST', signal, body: JSON.stringify(
        {...body, stream: true, stream_options: {include_usage: true}})});
    for await (const {choices, usage, timings} of events(response)) {
      const {delta = {}, text, finish_reason: reason} = choices?.[0] ?? {};
      yield {content: delta.content ?? text ?? '', reasoning: delta.reasoning_content ?? '',
             usage, timings, reason};
    }
  }

  return {props, models, answer};
})();
