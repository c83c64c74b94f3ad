"""Write every generated file anew: `make reference`."""

from tools.reference.pages import pages

if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
