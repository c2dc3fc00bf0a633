"""Tests prompts with images, on models that transformers has continued."""
import io
import json
import pathlib

import pytest

import walsh

PIL = pytest.importorskip("PIL.Image")
VISION = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "vision"


@pytest.fixture(scope="module", params=["gemma3-chat", "mistral3-chat", "qwen3vl-chat",
                                        "qwen35-chat"])
def chats(request):
    """A model and what it says to messages with images."""
    folder = VISION / request.param
    with walsh.Model(folder, device="cpu", context=200) as model:
        yield model, json.loads((folder / "chats.json").read_text())


def generate(model, chat, images, prompt=None):
    return model.generate(prompt or chat["prompt"], max_tokens=len(chat["tokens"]), temperature=0,
                          images=images, ignore_eos=True)


def test_texts_equal_transformers_for_every_kind_of_image(chats):
    model, known = chats
    for chat in known:
        paths = [VISION / "images" / name for name in chat["images"]]
        found = generate(model, chat, paths)
        assert found.prompt_tokens == len(chat["input_ids"])
        expected = model.detokenize(chat["tokens"])
        assert found.text == expected
        contents = [path.read_bytes() for path in paths]
        for images in ([str(path) for path in paths], contents, map(bytearray, contents)):
            assert generate(model, chat, images).text == expected


def test_a_message_with_an_image_becomes_a_prompt(chats):
    model, known = chats
    parts = [{"type": "image"}, {"type": "text", "text": known[0]["text"]}]
    assert model.chat_prompt([{"role": "user", "content": parts}]) == known[0]["prompt"]


def test_images_of_pillow_are_taken_as_they_are(chats):
    model, known = chats
    chat = known[0]
    for name in ("colour.png", "ink.jpg", "grey.png", "palette.png"):
        with PIL.open(VISION / "images" / name) as image:
            png = io.BytesIO()
            image.convert("RGBA" if "transparency" in image.info else "RGB").save(png, "PNG")
            expected = generate(model, chat, [png.getvalue()]).text
            assert generate(model, chat, [image]).text == expected


def test_images_that_cannot_be_shown_are_refused(chats, model, tmp_path):
    pictured, known = chats
    chat = known[0]

    def refused(code, opened, images):
        with pytest.raises(walsh.Error) as caught:
            generate(opened, chat, images)
        assert caught.value.code == code, caught.value
        return str(caught.value)

    assert "1 place for images" in refused("usage", pictured, [b""] * 2)
    assert "image 1" in refused("bad_input", pictured, [b"no image"])
    assert "none.png" in refused("io", pictured, [tmp_path / "none.png"])
    assert "list of images" in refused("usage", pictured, "one.png")
    assert "list of images" in refused("usage", pictured, b"bytes")
    assert "expected a path" in refused("usage", pictured, [1.5])
    assert "takes no images" in refused("usage", model, [b"any"])
