mvn compile exec:java -Dexec.mainClass=Quickstart
