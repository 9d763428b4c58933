# copy_checkout FOLDER: what the checkout holds, without what was built or installed in it.
copy_checkout() {
    tar --create --exclude-vcs --exclude=./.venv --exclude=./build --exclude='*.egg-info' \
        --exclude=__pycache__ --exclude='*.so' --exclude='.*_cache' --exclude=./agentd/bin . |
        tar --extract --directory "$1"
}
