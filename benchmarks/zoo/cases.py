"""The zoo: its programs, and what an expert says of each."""

from __future__ import annotations

from benchmarks.zoo.case import Case

HF = ("transformers", "datasets", "accelerate")
PRODUCTS = ("BRR102", "BRR104")
SMALL = ("BRR301", "BRR302", "BRR504")
SINGLE = ("BRR313",)
EVALUATION = ("BRR302", "BRR311", "BRR312")
LOADER = ("BRR401", "BRR403", "BRR405", "BRR408")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")

CASES = (
    Case(
        "hf_trainer_encoder", HF, "training", "every text is padded to 256 tokens, and has some 25",
        ("data",), ("BRR409",), ('padding="max_length"',),
        ((', padding="max_length"', ""),),
    ),
    Case(
        "hf_trainer_decoder", HF, "training", "fp32 matrix products of forward and backward, no bf16",
        ("compute",), PRODUCTS, ("trainer.train()", "args = TrainingArguments("),
        (("use_cpu=True", "use_cpu=True, bf16=True"),),
    ),
    Case(
        "hf_trainer_seq2seq", HF, "training", "generates with the model after every tenth step to evaluate",
        ("host", "overhead"), EVALUATION, ("eval_steps=10", "predict_with_generate"),
        (("eval_steps=10", "eval_steps=60"),),
    ),
    Case(
        "hf_trainer_images", HF, "training", "pictures are turned and scaled one by one between the steps",
        ("data",), LOADER, (".resize((112, 112)", "image.rotate("),
        (('report_to="none"', 'report_to="none", dataloader_num_workers=2'),),
    ),
    Case(
        "accelerate_nlp", HF, "training", "fp32 matrix products of forward and backward, no bf16",
        ("compute",), PRODUCTS, ("outputs = model(**batch)", "accelerator.backward", "Accelerator(cpu=True)"),
        (("Accelerator(cpu=True)", 'Accelerator(cpu=True, mixed_precision="bf16")'),),
    ),
    Case(
        "peft_lora", (*HF, "peft"), "training", "every text is padded to 128 tokens, and has some 27",
        ("data",), ("BRR409",), ('padding="max_length"', "loader = DataLoader", "model(**batch)"),
        (
            (
                "    {\"input_ids\": ids, \"attention_mask\": mask, \"labels\": ids.masked_fill(mask == 0, -100)}\n",
                "    {\"input_ids\": ids[:42], \"attention_mask\": mask[:42], \"labels\": "
                "ids.masked_fill(mask == 0, -100)[:42]}\n",
            ),
        ),
    ),
    Case(
        "trl_sft", (*HF, "trl"), "training", "the activations of a small model are recomputed (trl's default)",
        ("compute",), ("BRR111",), ("args = SFTConfig(", "bf16=False", "trainer.train()"),
        (("bf16=False", "bf16=False, gradient_checkpointing=False"),),
    ),
    Case(
        "sentence_transformers_train", (*HF, "sentence_transformers"), "training",
        "fp32 matrix products of forward and backward, no bf16",
        ("compute",), PRODUCTS, ("trainer.train()", "args = SentenceTransformerTrainingArguments("),
        (("use_cpu=True", "use_cpu=True, bf16=True"),),
    ),
    Case(
        "sentence_transformers_encode", (*HF, "sentence_transformers"), "inference",
        "one document per call: many small ops where batches of 32 would do",
        ("overhead", "host"), (*SMALL, *SINGLE), ("model.encode(document)",),
        (
            ("np.stack([model.encode(document) for document in documents])", "np.stack(model.encode(documents))"),
        ),
    ),
    Case(
        "diffusers_unet", ("diffusers", "transformers", "accelerate"), "training",
        "fp32 convolutions, two thirds of them backward",
        ("compute",), (*PRODUCTS, "BRR204"), ("noise_pred = model(", "loss.backward()", "model = UNet2DModel("),
        (("        noise_pred = model(noisy_images", "        with torch.autocast(\"cpu\", torch.bfloat16):\n"
          "            noise_pred = model(noisy_images"),),
    ),
    Case(
        "lightning_images", ("lightning", "PIL"), "training", "pictures are turned one by one between the steps",
        ("data",), LOADER, (".rotate(", "loader = DataLoader(", "torch.tensor(np.asarray"),
        (("batch_size=32, shuffle=True", "batch_size=32, shuffle=True, num_workers=2"),),
    ),
    Case(
        "lightning_metrics", ("lightning", "torchmetrics"), "training",
        "AUROC over all that was seen so far, after every step",
        ("host", "overhead", "compute"), ("BRR302", "BRR311"), ("self.auroc.compute()", "self.auroc.update"),
        (('        self.log("train_auroc", self.auroc.compute())\n', ""),),
    ),
    Case(
        "skorch_rows", ("skorch",), "training", "the loader takes 1,024 rows one by one and stacks them",
        ("data",), LOADER, ("net.fit(X, y)", "net = NeuralNetClassifier("),
        (
            (
                "torch.manual_seed(0)\n",
                "class Rows(torch.utils.data.TensorDataset):\n"
                "    def __init__(self, X, y=None):\n"
                "        y = np.zeros(len(X)) if y is None else y\n"
                "        super().__init__(torch.from_numpy(X), torch.from_numpy(y))\n"
                "\n"
                "    def __getitems__(self, rows):\n"
                "        return self[rows]\n"
                "\n\n"
                "torch.manual_seed(0)\n",
            ),
            (
                "iterator_train__shuffle=True",
                "iterator_train__shuffle=True, dataset=Rows, iterator_train__collate_fn=list, "
                "iterator_valid__collate_fn=list",
            ),
        ),
    ),
    Case(
        "timm_resnet", ("timm", "torchvision"), "training", "fp32 convolutions",
        ("compute",), (*PRODUCTS, "BRR204"), ("model(images)", "loss.backward()"),
    ),
    Case(
        "pyg_gcn", ("torch_geometric",), "training",
        "dropout over all 256 features of 4,000 nodes and gather and scatter of edges; a test after every step",
        ("bandwidth",), ("BRR112", "BRR202", "BRR201", *EVALUATION, "BRR107"),
        ("accuracies = test()", "pred = model(", "out = model(", "F.dropout(x", "self.conv1(x"),
        (
            ("    accuracies = test()\n", ""),
            ("    if epoch % 20 == 0:\n", "    if epoch % 20 == 0:\n        accuracies = test()\n"),
        ),
    ),
    Case(
        "pyg_graphs", ("torch_geometric",), "training", "128 graphs are joined one by one for every batch",
        ("data",), LOADER, ("for data in train_loader", "train_loader = DataLoader("),
        (("batch_size=128, shuffle=True", "batch_size=128, shuffle=True, num_workers=2, persistent_workers=True"),),
    ),
    Case(
        "sb3_ppo", ("stable_baselines3", "gymnasium"), "training",
        "simulator and one forward per step of it; small ops in the updates",
        ("host", "overhead"), (*SMALL, "BRR208", "BRR312"), ("model.learn(",),
    ),
    Case(
        "sb3_dqn", ("stable_baselines3", "gymnasium"), "training",
        "simulator, replay buffer and many tiny ops per update",
        ("host", "overhead"), (*SMALL, "BRR208"), ("model.learn(",),
    ),
    Case(
        "gpytorch_exact", ("gpytorch",), "training", "conjugate gradients: products with a 1,200 x 1,200 matrix",
        ("compute", "bandwidth"), PRODUCTS, ("-mll(output, train_y)", "loss.backward()"),
    ),
    Case(
        "gpytorch_svgp", ("gpytorch",), "training", "triangular solves and many small ops, 300 inducing points",
        ("overhead", "host", "compute"), SMALL, ("-mll(model(x_batch)", "loss.backward()"),
    ),
    Case(
        "pyro_vae", ("pyro",), "training", "an Adam of its own for each of ten tensors, and many small ops",
        ("data", "overhead", "host"), (*LOADER, *SMALL, "BRR208"),
        ("train_loader = DataLoader(", "for (x,) in train_loader", "svi.step(x)"), per_step=10,
    ),
    Case(
        "forecasting_tft", ("pytorch_forecasting", "lightning", "pandas"), "training",
        "hundreds of tiny ops per step, and rows taken one by one from pandas",
        ("overhead", "host", "data"), (*SMALL, *LOADER, "BRR208"), ("trainer.fit(",),
    ),
    Case(
        "monai_segmentation", ("monai",), "training", "a volume is turned and cropped for every sample in the loop",
        ("data",), LOADER, ("RandAffined(", "train_loader = DataLoader(", "for batch_data in train_loader"),
        (("num_workers=0", "num_workers=2, persistent_workers=True"),),
    ),
    Case(
        "llama_generate", ("transformers",), "inference", "one prompt at a time: every token reads all weights",
        ("bandwidth", "overhead"), (*SMALL, *SINGLE), ("output = model.generate(", "for prompt in prompts"),
    ),
    Case(
        "whisper_generate", ("transformers",), "inference", "one clip at a time: many small ops per token",
        ("overhead", "host"), (*SMALL, *SINGLE), ("predicted = model.generate(", "for clip in clips"),
    ),
    Case(
        "hf_pipeline", ("transformers",), "inference", "one text per call: many small ops where batches would do",
        ("overhead", "host"), (*SMALL, *SINGLE), ("classify(text)",),
        (
            (
                "[classify(text)[0][\"label\"] for text in sentences(250)]",
                "[each[\"label\"] for each in classify(sentences(250), batch_size=16)]",
            ),
        ),
    ),
    Case(
        "ddp_torchrun", (), "training", "gradients of 19 MB are summed over gloo at every step",
        ("communication", "compute"), ("BRR701", *PRODUCTS), ("loss.backward()", "model = DDP("), command=TORCHRUN,
    ),
    Case(
        "dcgan", (), "training", "fp32 convolutions of two nets, two thirds of them backward",
        ("compute",), (*PRODUCTS, "BRR204"), ("backward()", "netD(", "netG("), per_step=2,
    ),
    Case(
        "lbfgs_sine", (), "training", "two LSTM cells are walked through 199 points of time in Python",
        ("overhead", "host"), SMALL, ("for input_t in", "self.lstm1(input_t", "self.linear(h_t2)", "self.lstm2("),
        (
            ("self.lstm1 = nn.LSTMCell(1, 51)\n        self.lstm2 = nn.LSTMCell(51, 51)",
             "self.lstm = nn.LSTM(1, 51, 2, batch_first=True)"),
            ("        for input_t in input.split(1, dim=1):\n"
             "            h_t, c_t = self.lstm1(input_t, (h_t, c_t))\n"
             "            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))\n"
             "            outputs += [self.linear(h_t2)]\n"
             "        return torch.cat(outputs, dim=1)",
             "        return self.linear(self.lstm(input.unsqueeze(-1))[0]).squeeze(-1)"),
        ),
    ),
    Case(
        "functorch_ensemble", (), "training", "gradients of 32 samples are made whole, 346 KB each, then clipped",
        ("bandwidth", "compute"), ("BRR202", "BRR201", "BRR301"), ("per_sample(params", "each.flatten(1)", "clipped ="),
        counts="inference",
    ),
    Case(
        "reinforce", ("gymnasium",), "training", "one tiny forward per step of the simulator",
        ("host", "overhead"), SMALL, ("select_action(", "policy(torch.from_numpy", "policy_loss.backward()"),
    ),
    Case(
        "compiles_itself", (), "training", "lengths change with every batch",
        ("compute", "compile"), (*PRODUCTS, "BRR801", "BRR803"), ("model = torch.compile(", "model(inputs)"),
    ),
    Case(
        "ignite_validation", ("ignite",), "training", "2,000 pictures are validated after every tenth step",
        ("compute", "host"), EVALUATION, ("val_evaluator.run(val_loader)", "ITERATION_COMPLETED(every=10)"),
        (("every=10", "every=100"),),
    ),
    Case(
        "x_transformers_lm", ("x_transformers",), "training", "fp32 matrix products, four small batches per update",
        ("compute",), (*PRODUCTS, "BRR105", "BRR301"), ("loss = model(next(", ").backward()"),
    ),
    Case(
        "tabnet_table", ("pytorch_tabnet",), "training", "many tiny ops: eight virtual batches, each normalised",
        ("overhead", "host"), SMALL, ("classifier.fit(",),
    ),
    Case(
        "torchdiffeq_ode", ("torchdiffeq",), "training", "an adaptive solver of tiny ops in Python",
        ("overhead", "host"), SMALL, ("pred_y = odeint(", "loss.backward()"),
        (("odeint(func, batch_y0, batch_t)", "odeint(func, batch_y0, batch_t, method=\"rk4\")"),),
    ),
    Case(
        "captum_gradients", ("captum",), "inference", "convolutions over 50 copies of each picture, and backward",
        ("compute",), (*PRODUCTS, "BRR106", "BRR202"), ("explain.attribute(",), per_step=4,
    ),
    Case(
        "metric_learning", ("pytorch_metric_learning",), "training", "fp32 convolutions and pooling",
        ("compute",), (*PRODUCTS, "BRR202", "BRR204"), ("embeddings = model(", "loss.backward()"),
    ),
    Case(
        "fastai_table", ("fastai", "torchvision"), "training", "rows taken from pandas for every batch",
        ("data", "host"), (*LOADER, *SMALL), ("learn.fit_one_cycle(",),
    ),
)  # fmt: skip
