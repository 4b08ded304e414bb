"""Networks that people use, with random weights: built by the packages they come from, without a download."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Built = tuple[nn.Module, tuple[Any, ...]]  # a network, and inputs for it
NETWORKS: dict[str, Callable[[], Built]] = {}
IMAGE = 64  # pixels a side, where a network takes any

# torchvision's compiled operators cannot be loaded beside a torch built for the CPU, and its import, which transformers
# and timm bring along, stops without these two names. None of the networks here uses them.
OPERATORS = torch.library.Library("torchvision", "DEF")
for _operator in ("nms", "qnms"):
    OPERATORS.define(f"{_operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def network(name: str) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    def register(build: Callable[[], Built]) -> Callable[[], Built]:
        NETWORKS[name] = build
        return build

    return register


# -- torchvision


def _torchvision(name: str, size: int = IMAGE, **options: Any) -> Callable[[], Built]:
    def build() -> Built:
        import torchvision.models

        return torchvision.models.get_model(name, weights=None, num_classes=10, **options), (_images(size),)

    return build


def _images(size: int) -> Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))


for _name in ("resnet18", "resnet50", "vgg11", "vgg11_bn", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large",
              "densenet121", "efficientnet_b0", "convnext_tiny", "shufflenet_v2_x1_0", "squeezenet1_0",
              "regnet_y_400mf", "mnasnet1_0"):  # fmt: skip
    network(f"torchvision {_name}")(_torchvision(_name))
network("torchvision googlenet")(_torchvision("googlenet", aux_logits=False, init_weights=False))
network("torchvision inception_v3")(_torchvision("inception_v3", 96, aux_logits=False, init_weights=False))
network("torchvision swin_t")(_torchvision("swin_t"))
network("torchvision vit_b_16")(_torchvision("vit_b_16", 64, image_size=64))


# -- Hugging Face transformers


def _tokens(vocabulary: int = 100, length: int = 12) -> Tensor:
    return torch.randint(0, vocabulary, (2, length), generator=torch.Generator().manual_seed(0))


def _bert() -> Any:
    import transformers

    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=100, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512,
        max_position_embeddings=64, num_labels=3,
    ))  # fmt: skip


@network("transformers BERT-tiny")
def _bert_tiny() -> Built:
    return _bert(), (_tokens(),)


@network("transformers DistilBERT-tiny")
def _distilbert() -> Built:
    import transformers

    config = transformers.DistilBertConfig(vocab_size=100, dim=128, hidden_dim=512, n_layers=2, n_heads=4,
                                           max_position_embeddings=64, num_labels=3)  # fmt: skip
    return transformers.DistilBertForSequenceClassification(config), (_tokens(),)


@network("transformers GPT-2-tiny")
def _gpt2() -> Built:
    import transformers

    config = transformers.GPT2Config(vocab_size=100, n_positions=64, n_embd=128, n_layer=2, n_head=4, use_cache=False)
    return transformers.GPT2LMHeadModel(config), (_tokens(),)


@network("transformers Llama-tiny")
def _llama() -> Built:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=100, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, use_cache=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config), (_tokens(),)


@network("transformers T5-tiny encoder")
def _t5() -> Built:
    import transformers

    config = transformers.T5Config(vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    return transformers.T5EncoderModel(config), (_tokens(),)


@network("transformers ViT-tiny")
def _vit() -> Built:
    import transformers

    config = transformers.ViTConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512,
                                    image_size=64, patch_size=16, num_labels=3)  # fmt: skip
    return transformers.ViTForImageClassification(config), (_images(64),)


@network("peft LoRA on BERT-tiny")
def _lora() -> Built:
    import peft

    config = peft.LoraConfig(task_type="SEQ_CLS", r=8, target_modules=["query", "value"])
    return peft.get_peft_model(_bert(), config), (_tokens(),)


# -- timm


def _timm(name: str, **options: Any) -> Callable[[], Built]:
    def build() -> Built:
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **options), (_images(IMAGE),)

    return build


network("timm vit_tiny_patch16_224")(_timm("vit_tiny_patch16_224", img_size=IMAGE))
network("timm mixer_s32_224")(_timm("mixer_s32_224", img_size=IMAGE))
network("timm resnet26d")(_timm("resnet26d"))
network("timm convnext_atto")(_timm("convnext_atto"))
