"""Models with random weights, so that nothing is downloaded, and what a step of each is."""

import torch


def set_up(precision):
    torch.set_num_threads(4)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision(precision)


def inference(name):
    """A function that does one request of four inputs."""
    if name == "resnet50":
        import torchvision

        model = torchvision.models.resnet50(weights=None).eval().cuda()
        images = torch.randn(4, 3, 224, 224, device="cuda")
        return lambda: model(images)
    if name == "bert":
        from transformers import BertConfig, BertModel

        model = BertModel(BertConfig()).eval().cuda()
        tokens = torch.randint(0, 30_000, (4, 128), device="cuda")
        return lambda: model(tokens)[0]
    raise SystemExit(f"no model {name} to serve")


def training(name):
    """A function that does one step, and the parameters it changes."""
    if name == "resnet50":
        import torchvision

        model = torchvision.models.resnet50(weights=None).cuda()
        images = torch.randn(64, 3, 224, 224, device="cuda")
        labels = torch.randint(0, 1000, (64,), device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def step():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            return loss

        return step, list(model.parameters())
    if name == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        model = GPT2LMHeadModel(GPT2Config()).cuda()
        tokens = torch.randint(0, 50_000, (8, 512), device="cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

        def step():
            optimizer.zero_grad()
            loss = model(tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            return loss

        return step, list(model.parameters())
    if name == "matmul":
        left, right, product = (torch.randn(8192, 8192, device="cuda") for _ in range(3))
        return lambda: torch.mm(left, right, out=product), []
    raise SystemExit(f"no model {name} to train")
