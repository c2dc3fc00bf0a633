"""Prints greedy tokens of a model in vLLM's own processes, as JSON: vllm_tokens.py OPTIONS
TOKENS."""
import json
import sys


def main():
    import vllm

    llm = vllm.LLM(**json.loads(sys.argv[1]))
    ask = vllm.SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    prompts = [{"prompt_token_ids": tokens} for tokens in json.loads(sys.argv[2])]
    outputs = llm.generate(prompts, ask, use_tqdm=False)
    print(json.dumps([list(output.outputs[0].token_ids) for output in outputs]))


if __name__ == "__main__":
    main()
