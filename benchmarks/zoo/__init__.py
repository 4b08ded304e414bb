"""Units of networks that people use: torchvision's, Hugging Face's, timm's, and LoRA adapters on one of them."""
