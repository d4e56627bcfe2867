import perl_environment  # noqa: F401 - adds the environment perl
