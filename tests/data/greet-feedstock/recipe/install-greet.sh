set -e
echo "installing the program, with $TOKEN"
sleep 3
mkdir -p $PREFIX/bin
cp greet $PREFIX/bin/
