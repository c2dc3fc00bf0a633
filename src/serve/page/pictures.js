// Holds the images that the next message will have, each as a data: URL, and takes them from the
// clipboard and from files that are dropped on the page.
const pictures = (() => {
  // Larger files are made smaller here: towers make them smaller anyhow, and a browser stores some
  // megabytes for all conversations.
  const kMostBytes = 256 * 1024, kMostSide = 1024, kMost = 8;
  const kTypes = ['image/jpeg', 'image/png', 'image/webp'];
  const box = document.getElementById('pictures');
  let urls = [];

  const show = () => {
    box.hidden = !urls.length;
    box.replaceChildren(...urls.map((url, i) => {
      const remove = markdown.element('button', image(url));
      Object.assign(remove, {type: 'button', title: 'Remove this image'});
      remove.addEventListener('click', () => set(urls.filter((_, k) => k !== i)));
      return remove;
    }));
  };
  const set = (next) => {
    urls = next;
    show();
  };
  const image = (url) => Object.assign(markdown.element('img'), {src: url, alt: 'Image'});

  const read = (file) => new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  const smaller = async (file) => {
    const bitmap = await createImageBitmap(file);
    const share = Math.min(1, kMostSide / Math.max(bitmap.width, bitmap.height));
    const canvas = document.createElement('canvas');
    canvas.width = Math.max(1, Math.round(bitmap.width * share));
    canvas.height = Math.max(1, Math.round(bitmap.height * share));
    const to = canvas.getContext('2d');
    to.fillStyle = '#fff';  // under transparent pixels, as the server lays them
    to.fillRect(0, 0, canvas.width, canvas.height);
    to.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL('image/jpeg', 0.9);
  };

  return {
    image,
    // Returns the image files among what was pasted or dropped.
    files: (data) => [...(data?.files ?? [])].filter(({type}) => type.startsWith('image/')),
    // Throws an error in plain words for a file that the browser cannot read.
    async add(files) {
      for (const file of files) {
        if (urls.length === kMost) throw new Error(`A message has at most ${kMost} images here.`);
        try {
          const small = file.size <= kMostBytes && kTypes.includes(file.type);
          set([...urls, await (small ? read(file) : smaller(file))]);
        } catch {
          throw new Error(`${file.name} cannot be read as an image.`);
        }
      }
    },
    set,
    get: () => urls,
  };
})();
